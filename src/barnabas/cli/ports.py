"""Addresses to listen on: what `--listen` says, and which ports are free."""

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from barnabas.base.addresses import address_text, bracket_hint
from barnabas.base.errors import BarnabasError, InvalidSetting

PORT_MAX: Final = 65_535


class PortUnavailable(BarnabasError):  # noqa: N818 - named as the fact that it is
    """Nobody can listen there now; the message is for the person who chose the port."""


def parse_listen(address: str) -> tuple[str, int]:
    """Host, without brackets, and port of `--listen HOST:PORT`."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > PORT_MAX or bracket_hint(address):
        raise InvalidSetting(f"--listen {address} is not allowed; it must be HOST:PORT{bracket_hint(address)}")
    return host.strip("[]"), int(port)


def free_ports(wanted: Sequence[tuple[str, int]]) -> list[int]:
    """The wanted ports, and free ones that differ where 0 is wanted.

    `PortUnavailable` when one is in use. Another process may still take one before the caller does.
    """
    with ExitStack() as held:
        return [held.enter_context(_listening(host, port)).getsockname()[1] for host, port in wanted]


def is_free(host: str, port: int) -> bool:
    try:
        free_ports([(host, port)])
    except PortUnavailable:
        return False
    return True


def _listening(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        where = address_text(host, port)
        raise PortUnavailable(
            f"cannot listen on {where}: {error.strerror}; choose another address with --listen"
        ) from error
    except OverflowError:
        listening.close()
        raise PortUnavailable(f"there is no port {port}; choose a lower one with --listen") from None
    return listening
