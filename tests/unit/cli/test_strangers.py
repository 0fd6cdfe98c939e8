"""What a command says when something listens at the address, and it is no broker: one line that names it."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

import pytest

from barnabas.cli import remote
from tests.support.command_line import run
from tests.unit.net.test_sending import tls_contexts

__all__ = ["tls_contexts"]


@contextmanager
def serving(server: TCPServer) -> Iterator[str]:
    """The address of a server that runs in a thread."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    with server:
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    """Waits for a whole line before it answers, as Go's server does."""

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


class WantsTls(TCPServer):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Quiet)
        self._context = context

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        client, address = super().get_request()
        client.settimeout(5)
        return self._context.wrap_socket(client, server_side=True), address

    def handle_error(self, *_: object) -> None:
        """Clients that do not speak TLS are the case here."""


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_CONNECT_SECONDS_MAX", 0.3)


def test_web_server_is_recognised(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Quiet)) as address:
        status, out, err = run(capsys, "topic", "list", "-b", address)
    line = f"{address} is a web server (HTTP), not a Kafka broker; --bootstrap wants the address of a broker"
    assert (status, out, err) == (1, "", f"barnabas: {line}\n")


def test_port_that_wants_tls_is_recognised(
    capsys: pytest.CaptureFixture[str], tls_contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    with serving(WantsTls(tls_contexts[0])) as address:
        status, out, err = run(capsys, "topic", "list", "-b", address)
    assert (status, out) == (1, "")
    assert err.startswith(f"barnabas: {address} is a port that wants TLS, which is not supported yet;")


def test_peer_that_never_answers_is_waited_for_aloud(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_SILENT_SECONDS_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        status, _, err = run(capsys, "topic", "list", "-b", address)
    assert status == 1
    waiting, failed = err.splitlines()
    assert waiting == f"waiting for an answer from {address}"
    assert failed == (
        f"barnabas: no broker answers at {address} ({address} accepts connections, but does not answer);"
        " is that the address of a broker? 'barnabas up' starts one"
    )
