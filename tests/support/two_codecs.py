"""The two codecs of Produce, Fetch and OffsetCommit side by side: frames to read, and answers to compare.

A frame here is what follows the length prefix, as in `barnabas.wire.framing`.
"""

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Any
from uuid import UUID

import pytest

from barnabas.base.buffers import Buffer
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.codecs import COMPILED, REFERENCE, Codecs, Declined, DecodedFrame
from barnabas.wire.commit import decode_commit
from barnabas.wire.errors import MalformedRequest
from barnabas.wire.fetch import FetchPiece, decode_fetch
from barnabas.wire.framing import parse_request_header
from barnabas.wire.leaders import NodeEndpoint
from barnabas.wire.primitives import INT32, NO_TAGGED_FIELDS, tagged_fields
from barnabas.wire.produce import decode_produce

CORRELATION_ID = 71
CLIENT_IDS = ("consumer-1", "", None, "größer", "c" * 300, b"\xff\xc3(", b"\xed\xa0\x80")
NAMES = ("", "o", "größer", "n" * 126, "n" * 127, "n" * 249, "ä" * 124)
LONG_NAMES = ("n" * 250, "ä" * 125, "n" * 20_000, "\ufffd" * 20_000)
"""Longer than a topic's name may be, and longer than any text may be."""
ANY_TAGS = tagged_fields([(99, b"from a newer client")])
TOPIC_ID = UUID("0c8cf7a6-2f4f-4a8d-9a7e-5a3f6a1d2b3c")
OTHER_ID = UUID("7e5a3f6a-9a7e-4a8d-2f4f-0c8cf7a61d2b")
ENDPOINTS = (NodeEndpoint(2, "klamm", 9092, "north"), NodeEndpoint(3, "", -1, None))
NOT_A_COUNT = (b"\xff" * 5, b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x01")
CHANGES = (0, 1, 2, 0x7F, 0x80, 0xFF)
TOO_MANY = [
    pytest.param([501], id="partitions"),
    pytest.param([250, 251], id="partitions of two topics"),
    pytest.param([0] * 501, id="topics"),
    pytest.param([1] * 501, id="topics with a partition"),
]
"""Partitions of each topic, more than the compiled codec reads at once."""

_REQUEST_START = Struct(">hhih")
_DECODERS: dict[int, Callable[[int, memoryview], Any]] = {
    ApiKey.PRODUCE: decode_produce,
    ApiKey.FETCH: decode_fetch,
    ApiKey.OFFSET_COMMIT: decode_commit,
}

needs_compiled = pytest.mark.skipif(COMPILED is None, reason="there was no compiler")


def compiled() -> Codecs:
    assert COMPILED is not None
    return COMPILED


def shown(text: str | bytes | None) -> str:
    """The name of a case, however long its text is."""
    return f"{text!r:.12} of {len(text or '')}"


def versions(api_key: ApiKey) -> range:
    return range(APIS[api_key].version_min, APIS[api_key].version_max + 1)


def topic_keys(topic_id_from: int, version: int) -> tuple[str | bytes, str | bytes]:
    """Two topics as the version names them: by name, or by id."""
    return (TOPIC_ID.bytes, OTHER_ID.bytes) if version >= topic_id_from else ("orders", "größer")


def frame_of(
    api_key: ApiKey, version: int, body: bytes, client_id: str | bytes | None = "client", tags: bytes = NO_TAGGED_FIELDS
) -> bytes:
    """`tags` are those of the header, which flexible versions have."""
    encoded = client_id.encode() if isinstance(client_id, str) else client_id
    length = -1 if encoded is None else len(encoded)
    header = _REQUEST_START.pack(api_key, version, CORRELATION_ID, length) + (encoded or b"")
    return header + (tags if APIS[api_key].is_flexible(version) else b"") + body


# --- reading ----------------------------------------------------------------------------------------------


def read_by_reference(frame: Buffer) -> DecodedFrame:
    view = memoryview(frame)
    header = parse_request_header(view)
    request = _DECODERS[header.api_key](header.api_version, view[header.body_position :])
    return header.api_version, header.correlation_id, header.client_id, request


def read_alike(api_key: ApiKey, frame: Buffer) -> DecodedFrame | Declined:
    """What the compiled decoder makes of a frame; what it takes must be what the reference reads, type by type."""
    view = _without_slack(frame)
    found = compiled().frame_decoders[api_key](view)
    if isinstance(found, int):
        return Declined(found)
    assert _exactly(found) == _exactly(read_by_reference(view))
    return found


def taken(api_key: ApiKey, frame: Buffer) -> Any:
    """The request of a frame that the compiled decoder must not decline."""
    found = read_alike(api_key, frame)
    assert not isinstance(found, Declined), found.name
    return found[3]


def taken_with_header(api_key: ApiKey, frame: Buffer, version: int, client_id: str | bytes | None) -> Any:
    """The request of a frame that is taken, with the header that it must have."""
    found = read_alike(api_key, frame)
    assert not isinstance(found, Declined), found.name
    text = client_id.decode("utf-8", "replace") if isinstance(client_id, bytes) else client_id or ""
    assert found[:3] == (version, CORRELATION_ID, text)
    return found[3]


def assert_any_buffer_is_taken(api_key: ApiKey, frame: bytes) -> None:
    decode = compiled().frame_decoders[api_key]
    assert decode(frame) == decode(bytearray(frame)) == decode(memoryview(frame)) == read_by_reference(frame)


def assert_starts_decline(api_key: ApiKey, frame: bytes, starts: Iterable[bytes]) -> None:
    """Each of `starts`, in place of the API key and the version, is not for this decoder."""
    for start in starts:
        assert read_alike(api_key, start + frame[4:]) is Declined.VERSION


def assert_tags_decline(api_key: ApiKey, tagged: bytes, untagged: bytes) -> None:
    """The reference reads the same from both; the compiled decoder leaves the tagged one to it."""
    assert read_alike(api_key, tagged) is Declined.FIELD
    assert read_by_reference(tagged)[3] == taken(api_key, untagged)


def assert_refused(api_key: ApiKey, frame: bytes, reason: Declined) -> None:
    """By both: the compiled decoder declines it for this reason, and the reference cannot read it."""
    assert read_alike(api_key, frame) is reason
    with pytest.raises(MalformedRequest):
        read_by_reference(frame)


def assert_cuts_and_additions_decline(api_key: ApiKey, frame: bytes) -> None:
    for end in range(len(frame)):
        assert read_alike(api_key, frame[:end]) is Declined.MALFORMED, end
    for more in (b"\0", b"\1", b"more"):
        assert read_alike(api_key, frame + more) is Declined.MALFORMED


def assert_changes_read_alike(api_key: ApiKey, frame: bytes) -> None:
    """Every byte in turn becomes each of `CHANGES`."""
    readings = []
    for position in range(len(frame)):
        for value in CHANGES:
            changed = bytearray(frame)
            changed[position] = value
            readings.append(read_alike(api_key, changed))
    assert any(isinstance(reading, tuple) for reading in readings), "numbers may be any"
    assert any(isinstance(reading, Declined) for reading in readings), "lengths may not"


def _without_slack(frame: Buffer) -> memoryview:
    """A copy whose memory ends with its last byte (bytes have a zero after it), so that a sanitizer sees an overrun."""
    return memoryview(array("B", list(frame)))


def _exactly(value: Any) -> Any:
    """Equal only for the same types: a named tuple equals any tuple otherwise, and an enum's member its number."""
    if isinstance(value, memoryview):
        return memoryview, bytes(value)
    if isinstance(value, list | tuple):
        return type(value), [_exactly(member) for member in value]
    return type(value), value


# --- writing ----------------------------------------------------------------------------------------------


@dataclass
class FileRange:
    """Records that lie in a file."""

    length: int

    def release(self) -> None:
        raise AssertionError("a codec gives nothing back")

    def read(self) -> bytes:
        return (b"records " * (self.length // 8 + 1))[: self.length]


def sent(frame: bytes | list[FetchPiece]) -> bytes:
    """What goes over the wire."""
    pieces = [frame] if isinstance(frame, bytes) else frame
    return b"".join(piece.read() if isinstance(piece, FileRange) else bytes(piece) for piece in pieces)  # type: ignore[arg-type]


def assert_written_alike(write: Callable[[Codecs], bytes | list[FetchPiece]]) -> bytes:
    """What both codecs write; a range is a piece of its own in either."""
    by_reference, by_compiled = write(REFERENCE), write(compiled())
    assert sent(by_compiled) == sent(by_reference)
    assert _ranges(by_compiled) == _ranges(by_reference)
    return sent(by_compiled)


def assert_framed(frame: bytes, correlation_id: int) -> None:
    """It begins with its length and the correlation id."""
    assert INT32.unpack_from(frame) == (len(frame) - 4,)
    assert INT32.unpack_from(frame, 4) == (correlation_id,)


def _ranges(frame: bytes | list[FetchPiece]) -> list[int]:
    """Their identities. One without a byte may be left out."""
    return [] if isinstance(frame, bytes) else [id(one) for one in frame if isinstance(one, FileRange) and one.length]
