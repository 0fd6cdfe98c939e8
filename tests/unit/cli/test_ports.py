"""Addresses to listen on."""

import socket

import pytest

from barnabas.base.errors import InvalidSetting
from barnabas.cli.ports import PortUnavailable, free_ports, is_free, parse_listen


def test_address_is_taken_apart() -> None:
    assert parse_listen("127.0.0.1:9092") == ("127.0.0.1", 9092)
    assert parse_listen("[::1]:0") == ("::1", 0)
    assert parse_listen(":9092") == ("", 9092)


@pytest.mark.parametrize("text", ["9092", "host:", "host:x", "host:65536", "::1:9092"])
def test_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="it must be HOST:PORT"):
        parse_listen(text)


def test_free_ports_differ_and_are_free() -> None:
    ports = free_ports([("127.0.0.1", 0)] * 5)

    assert len(set(ports)) == 5
    assert free_ports([("127.0.0.1", port) for port in ports]) == ports


def test_taken_port_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortUnavailable, match=rf"cannot listen on 127.0.0.1:{port}: Address already in use"):
            free_ports([("127.0.0.1", port)])
        assert not is_free("127.0.0.1", port)
    assert is_free("127.0.0.1", port)
    with pytest.raises(PortUnavailable, match="there is no port 65536"):
        free_ports([("127.0.0.1", 65_536)])
