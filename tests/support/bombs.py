"""Batches that are small on the wire and cost much to look at: what they expand to, or what they are made of.

Everything in them is valid, so that only a limit, and no mistake, can end the look at them.
"""

import struct
import time
import zlib

import cramjam
import zstandard

from barnabas.records.batch import Codec, read_header
from barnabas.records.builder import BatchBuilder
from barnabas.records.checksum import with_records

MIB = 1 << 20

_ZEROS_BYTES = 16 * MIB
_KEY = b"key"
_SNAPPY_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def batch_of(codec: Codec, compressed: bytes, count: int) -> bytes:
    """A batch that says it holds so many records, in these bytes."""
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), _KEY, b"")
    header = read_header(builder.build())
    return bytes(with_records(header._replace(attributes=codec, count=count, last_offset_delta=count - 1), compressed))


def zstd_bomb(mebibytes: int) -> bytes:
    """One record for each 16 MiB, whose value is zeros: about 550 bytes each."""
    compressor = zstandard.ZstdCompressor()
    zeros = compressor.compress(bytes(_ZEROS_BYTES))
    count = mebibytes * MIB // _ZEROS_BYTES
    frames = []
    for number in range(count):
        start = bytes([0]) + _varint(0) + _varint(number) + _varint(len(_KEY)) + _KEY
        # The last of the zeros is the number of headers.
        start += _varint(_ZEROS_BYTES - 1)
        frames += [compressor.compress(_varint(len(start) + _ZEROS_BYTES) + start), zeros]
    return batch_of(Codec.ZSTD, b"".join(frames), count)


def many_records(count: int, now_ms: int) -> bytes:
    """Records as small as they can be with a key, which compress well; the last is a second newer than the others."""
    builder = BatchBuilder(codec=Codec.ZSTD)
    for number in range(count):
        builder.append(now_ms if number + 1 == count else now_ms - 1000, _KEY, None)
    return bytes(builder.build())


def hollow(codec: Codec, size_bytes: int = MIB - 4096) -> bytes:
    """One small record behind a mebibyte of pieces that hold nothing: each of them costs time, and none expands."""
    record = _record()
    match codec:
        case Codec.GZIP:
            empty, last = zlib.compress(b"", wbits=31), zlib.compress(record, wbits=31)
            compressed = empty * (size_bytes // len(empty)) + last
        case Codec.SNAPPY:
            empty, last = _snappy_block(b""), _snappy_block(record)
            compressed = _SNAPPY_HEADER + empty * (size_bytes // len(empty)) + last
        case Codec.ZSTD:
            # A frame whose blocks, raw ones of no bytes, are three bytes each.
            frame = struct.pack("<I", 0xFD2FB528) + bytes(2)
            compressed = frame + bytes(3) * (size_bytes // 3) + (len(record) << 3 | 1).to_bytes(3, "little") + record
        case _:
            raise AssertionError(f"{codec} has no pieces that hold nothing")
    return batch_of(codec, compressed, 1)


def _record() -> bytes:
    body = bytes([0]) + _varint(0) + _varint(0) + _varint(len(_KEY)) + _KEY + _varint(-1) + _varint(0)
    return _varint(len(body)) + body


def _snappy_block(data: bytes) -> bytes:
    compressed = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(compressed)) + compressed


def _varint(number: int) -> bytes:
    encoded = number << 1 ^ number >> 63
    parts = bytearray()
    while encoded >= 0x80:
        parts.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    return bytes([*parts, encoded])
