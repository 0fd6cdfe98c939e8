"""Builds the batches of `__consumer_offsets`: what `records.builder` would build, for records of one moment.

All records of a batch have its timestamp and no headers, so that a record is its key and value between a few bytes that
hardly change. A test holds it equal to `BatchBuilder`. Every commit of every consumer passes here.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from barnabas.base.ids import NO_EPOCH, NO_PRODUCER, NO_SEQUENCE
from barnabas.groups.effects import DurableRecord
from barnabas.records.batch import CRC_START, HEADER_BYTES, MAGIC, PREFIX_BYTES, Codec
from barnabas.records.builder import encode_varint
from barnabas.records.checksum import compute_crc
from barnabas.records.compression import compress
from barnabas.wire.errors import ErrorCode, KafkaError

_HEADER: Final = Struct(">qiibIhiqqqhii")
"""As `barnabas.records.batch` describes it."""
_NO_PRODUCER_EPOCH: Final = -1
_ANY_SIZE: Final = 2**31 - 1
_NULL: Final = encode_varint(-1)
_NO_HEADERS: Final = b"\0"
_SAME_MOMENT: Final = b"\0\0"
"""No attributes, and the timestamp of the batch."""


class _Varints(dict[int, bytes]):
    """Encoded numbers; small ones are found without a call."""

    def __missing__(self, number: int) -> bytes:
        return encode_varint(number)


_VARINTS: Final = _Varints((number, encode_varint(number)) for number in range(1024))


def build_batch(
    records: Iterable[DurableRecord], timestamp_ms: int, codec: Codec = Codec.NONE, bytes_max: int = _ANY_SIZE
) -> bytearray:
    """One batch of these records, in order.

    KafkaError for more than `bytes_max` before compression: a batch that fits only because it compresses well might
    exceed what its loader is ready to unpack.
    """
    pieces: list[bytes] = []
    count = 0
    for key, value, _ in records:
        offset_delta = _VARINTS[count]
        key_length = _VARINTS[len(key)]
        if value is None:
            body = b"".join((_SAME_MOMENT, offset_delta, key_length, key, _NULL, _NO_HEADERS))
        else:
            body = b"".join((_SAME_MOMENT, offset_delta, key_length, key, _VARINTS[len(value)], value, _NO_HEADERS))
        pieces.append(_VARINTS[len(body)])
        pieces.append(body)
        count += 1
    assert count, "a batch has records"
    encoded: bytes | bytearray = b"".join(pieces)
    if HEADER_BYTES + len(encoded) > bytes_max:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {HEADER_BYTES + len(encoded)} bytes, but max.message.bytes is {bytes_max}",
        )
    if codec is not Codec.NONE:
        encoded = compress(codec, encoded, None)
    batch = bytearray(
        _HEADER.pack(
            0,
            HEADER_BYTES - PREFIX_BYTES + len(encoded),
            NO_EPOCH,
            MAGIC,
            0,
            codec,
            count - 1,
            timestamp_ms,
            timestamp_ms,
            NO_PRODUCER,
            _NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            count,
        )
    )
    batch += encoded
    batch[CRC_START - 4 : CRC_START] = compute_crc(batch).to_bytes(4, "big")
    return batch
