"""Finds out what answers at an address where no broker does: a web server, or a port that wants TLS.

For the message that a person gets, and only after a connection has failed: it opens connections of its own and asks in
the other protocol. A server that says nothing stays unknown.
"""

import asyncio
import contextlib
import ssl
from enum import Enum
from typing import Final

_TIMEOUT_SECONDS: Final = 1.0
_HTTP_REQUEST: Final = b"GET / HTTP/1.0\r\n\r\n"
_HTTP_STARTS: Final = (b"HTTP/", b"<!DO", b"<htm")
_TLS_STARTS: Final = (b"\x16\x03", b"\x15\x03")
"""A handshake, or an alert about ours."""


class Stranger(Enum):
    HTTP = "a web server (HTTP)"
    TLS = "a port that wants TLS"


async def recognise(host: str, port: int) -> Stranger | None:
    """What listens at this address, if it is something else than a broker and can be told."""
    if (await _answer(host, port, _HTTP_REQUEST)).startswith(_HTTP_STARTS):
        return Stranger.HTTP
    if (await _answer(host, port, _client_hello())).startswith(_TLS_STARTS):
        return Stranger.TLS
    return None


async def _answer(host: str, port: int, request: bytes) -> bytes:
    """The first bytes that come back; none when nothing does."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(request)
                return await reader.read(16)
            finally:
                writer.transport.abort()
    return b""


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()
