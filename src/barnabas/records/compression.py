"""The four codecs of a record batch, as Kafka frames them.

```
gzip    RFC 1952; more members may follow the first, and what is no member after one is ignored
snappy  snappy-java's frame: magic 82 53 4e 41 50 50 59 00, two int32 versions, blocks of int32 length and
        raw snappy; the header may come again between blocks. Bytes without that magic are one raw block
lz4     one LZ4 frame of independent blocks; what follows its end mark is ignored
zstd    RFC 8878 frames, windows up to 2^27
```

That is what Apache Kafka's Java code accepts, and what is written here is what it writes (librdkafka writes
raw snappy). Kafka skips the content checksum of an LZ4 frame; here a wrong one is refused.

Decompression is an iterator of bounded chunks, so that a bomb costs its reader time but no memory. What stays
in memory besides a chunk is the codec's window (32 KiB gzip, 4 MiB an lz4 block, 128 MiB zstd at worst) or
one snappy block, which cannot hold more than 64/3 of its compressed size. Data may also be made of pieces that hold
nothing; an empty chunk stands for some of them, so that a reader who counts chunks bounds the time it spends.

No batch may expand to more than `EXPANDED_BYTES_MAX`: a leader refuses it, and compaction, which needs the records of
a batch as a whole, leaves one that an older version took as it is. Every exception of a library becomes `CorruptBatch`
here.
"""

import struct
import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Final, assert_never

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard

from barnabas.base.buffers import Buffer
from barnabas.base.errors import CorruptBatch, ExpandsTooFar
from barnabas.records.batch import HEADER_BYTES, BatchHeader, Codec

EXPANDED_BYTES_MAX: Final = 128 << 20
"""More than an uncompressed batch can have (`socket.request.max.bytes`, 100 MiB), so only a bomb is larger."""

CHUNK_BYTES_MAX: Final = 1 << 20

_GZIP_WINDOW_BITS: Final = 31
"""zlib's way to say: a gzip header and trailer, nothing else."""
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_REST_BYTES_MAX: Final = 18
"""A rest of up to this length after a member is ignored whatever it holds: the shortest member has 20 bytes."""
_GZIP_INPUT_BYTES: Final = 1 << 16
"""zlib hands back a copy of the input it did not use yet, so it gets the input in pieces."""

_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEADER: Final = _SNAPPY_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_SNAPPY_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_LENGTH: Final = Struct(">i")
_SNAPPY_COPY_BYTES: Final = (64, 3)
"""The best that snappy can do: a copy of 64 bytes in 3."""

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BLOCKS: Final = 0x20
_LZ4_LEVEL_DEFAULT: Final = 9
"""Kafka's number for "not the high-compression mode"; any other level is one of that mode."""

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A50
_ZSTD_LEVEL_DEFAULT: Final = 3
_ZSTD_WINDOW_BYTES_MAX: Final = 1 << 27
_ZSTD_BLOCK_BYTES_MAX: Final = 1 << 17
_ZSTD_BLOCKS_TOGETHER: Final = 256
"""The number of blocks scanned between two chunks."""
_ZSTD_RUN_LENGTH_BLOCK: Final = 1
_UINT32_LITTLE: Final = Struct("<I")


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """The data as one compressed block. `level` is that of Kafka's `compression.gzip.level` and the like."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, -1 if level is None else level, wbits=_GZIP_WINDOW_BITS)
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(data))
        case Codec.LZ4:
            return _compress_lz4(data, _LZ4_LEVEL_DEFAULT if level is None else level)
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(_ZSTD_LEVEL_DEFAULT if level is None else level).compress(data)
        case _:
            assert_never(codec)


def decompress(codec_number: int, data: Buffer, bytes_max: int = EXPANDED_BYTES_MAX) -> Buffer:
    """All of it at once; `ExpandsTooFar` for data that is larger than `bytes_max`.

    It grows chunk by chunk, so that no other thread has to wait while a hundred megabytes are copied.
    """
    whole: Buffer = b""
    for chunk in decompress_chunks(codec_number, data, min(CHUNK_BYTES_MAX, bytes_max + 1)):
        if len(whole) + len(chunk) > bytes_max:
            raise ExpandsTooFar(f"the records expand to more than {bytes_max} bytes")
        if not whole:
            whole = chunk
        elif isinstance(whole, bytearray):
            whole += chunk
        elif chunk:
            whole = bytearray(whole)
            whole += chunk
    return whole


def expanded_records(header: BatchHeader, batch: memoryview) -> Buffer:
    """The records of a batch, decompressed; `ExpandsTooFar` when they are more than any batch may have."""
    records = batch[HEADER_BYTES:]
    return records if header.codec_number == Codec.NONE else decompress(header.codec_number, records)


def expansion_max(codec_number: int, data: Buffer) -> int | None:
    """The most that the data can expand to, where that is known without a look at all of it."""
    view = memoryview(data)
    if codec_number != Codec.SNAPPY:
        return len(view) if codec_number == Codec.NONE else None
    copied_bytes, in_bytes = _SNAPPY_COPY_BYTES
    bytes_max = len(view) * copied_bytes // in_bytes
    if bytes(view[:8]) == _SNAPPY_MAGIC:
        return bytes_max
    try:
        return min(bytes_max, cramjam.snappy.decompress_raw_len(view))
    except cramjam.DecompressionError:
        return 0  # which `decompress_chunks` refuses


def decompress_chunks(
    codec_number: int, data: Buffer, chunk_bytes_max: int = CHUNK_BYTES_MAX
) -> Iterator[bytes | memoryview]:
    """The decompressed data in order, in chunks of at most `chunk_bytes_max` bytes, of which some may be empty.

    Chunks come before the end of the data is seen: only an iteration that ends proves that the data is whole.
    """
    view = memoryview(data)
    match codec_number:
        case Codec.NONE:
            return _slices(view, chunk_bytes_max)
        case Codec.GZIP:
            return _decompress_gzip(view, chunk_bytes_max)
        case Codec.SNAPPY:
            return _decompress_snappy(view, chunk_bytes_max)
        case Codec.LZ4:
            return _decompress_lz4(view, chunk_bytes_max)
        case Codec.ZSTD:
            return _decompress_zstd(view, chunk_bytes_max)
        case _:
            raise CorruptBatch(f"codec {codec_number} does not exist")


def _slices(view: memoryview, slice_bytes: int) -> Iterator[memoryview]:
    for start in range(0, len(view), slice_bytes):
        yield view[start : start + slice_bytes]


def _decompress_gzip(view: memoryview, chunk_bytes_max: int) -> Iterator[bytes]:
    position = 0
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        while not member.eof:
            piece: Buffer = member.unconsumed_tail
            if not piece:
                piece = view[position : position + _GZIP_INPUT_BYTES]
                position += len(piece)
            if not piece:
                raise CorruptBatch("gzip data ends too early")
            try:
                chunk = member.decompress(piece, chunk_bytes_max)
            except zlib.error as error:
                raise CorruptBatch(f"gzip: {error}") from error
            yield chunk
        position -= len(member.unused_data)
        rest = view[position:]
        if len(rest) <= _GZIP_REST_BYTES_MAX or bytes(rest[:3]) != _GZIP_MAGIC:
            return


def _compress_snappy(view: memoryview) -> bytes:
    parts = [_SNAPPY_HEADER]
    for piece in _slices(view, _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(piece))
        parts += (_SNAPPY_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(view: memoryview, chunk_bytes_max: int) -> Iterator[memoryview]:
    header_bytes = len(_SNAPPY_HEADER)
    if len(view) < header_bytes or bytes(view[:8]) != _SNAPPY_MAGIC:
        yield from _slices(_decompress_snappy_block(view), chunk_bytes_max)
        return
    position = header_bytes
    # snappy-java takes fewer bytes than a length for the end of the stream
    while len(view) - position >= _SNAPPY_LENGTH.size:
        if bytes(view[position : position + 8]) == _SNAPPY_MAGIC:
            position += header_bytes
            yield view[:0]
            continue
        (length,) = _SNAPPY_LENGTH.unpack_from(view, position)
        position += _SNAPPY_LENGTH.size
        if not 0 < length <= len(view) - position:
            raise CorruptBatch(f"snappy block of {length} bytes, but {len(view) - position} are left")
        block = _decompress_snappy_block(view[position : position + length])
        yield block[:chunk_bytes_max]
        yield from _slices(block[chunk_bytes_max:], chunk_bytes_max)
        position += length


def _decompress_snappy_block(block: memoryview) -> memoryview:
    if not block:
        raise CorruptBatch("snappy block of no bytes")
    try:
        claimed_bytes = cramjam.snappy.decompress_raw_len(block)
        copied_bytes, in_bytes = _SNAPPY_COPY_BYTES
        if claimed_bytes * in_bytes > len(block) * copied_bytes:
            raise CorruptBatch(f"snappy block of {len(block)} bytes claims to hold {claimed_bytes}")
        return memoryview(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(str(error)) from error


def _compress_lz4(data: Buffer, level: int) -> bytes:
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level == _LZ4_LEVEL_DEFAULT else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _decompress_lz4(view: memoryview, chunk_bytes_max: int) -> Iterator[bytes]:
    if len(view) < 5 or bytes(view[:4]) != _LZ4_MAGIC:
        raise CorruptBatch("not an LZ4 frame")
    if not view[4] & _LZ4_INDEPENDENT_BLOCKS:
        raise CorruptBatch("an LZ4 frame with dependent blocks, which Kafka's clients cannot read")
    frame = lz4.frame.LZ4FrameDecompressor()
    piece: Buffer = view
    while not frame.eof:
        try:
            chunk = frame.decompress(piece, chunk_bytes_max)
        except (RuntimeError, EOFError) as error:
            raise CorruptBatch(f"lz4: {error}") from error
        if chunk:
            yield chunk
        if frame.needs_input and not frame.eof:
            raise CorruptBatch("lz4 data ends too early")
        piece = b""


def _decompress_zstd(view: memoryview, chunk_bytes_max: int) -> Iterator[bytes]:
    yield from _check_first_zstd_frame(view)
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    read_bytes = min(chunk_bytes_max, _ZSTD_BLOCK_BYTES_MAX)
    with decompressor.stream_reader(view, read_across_frames=True) as reader:
        while True:
            try:
                chunk = reader.read(read_bytes)
            except zstandard.ZstdError as error:
                raise CorruptBatch(str(error)) from error
            if not chunk:
                return
            yield chunk
            # Memory is taken before it is known how much comes: little for what is small, more for what is not.
            read_bytes = min(chunk_bytes_max, 2 * read_bytes)


def _check_first_zstd_frame(view: memoryview) -> Iterator[bytes]:
    """Refuses a first frame that is cut short, which the library reads without a word. Yields empty chunks alone.

    Kafka's Java code notices it in the first frame with data only, so later ones are not looked at.
    """
    position, end = 0, len(view)
    pieces = 0
    try:
        while (magic := _UINT32_LITTLE.unpack_from(view, position)[0]) & ~0xF == _ZSTD_SKIPPABLE_MAGIC:
            position += 8 + _UINT32_LITTLE.unpack_from(view, position + 4)[0]
            pieces += 1
            if pieces % _ZSTD_BLOCKS_TOGETHER == 0:
                yield b""
        if magic != _ZSTD_MAGIC:
            raise CorruptBatch("not a zstd frame")
        descriptor = view[position + 4]
        position += _zstd_frame_header_bytes(descriptor)
        is_last = False
        while not is_last:
            block = int.from_bytes(view[position : position + 3], "little")
            is_last, kind, length = bool(block & 1), block >> 1 & 3, block >> 3
            position += 3 + (1 if kind == _ZSTD_RUN_LENGTH_BLOCK else length)
            if position > end:
                raise CorruptBatch("zstd data ends too early")
            pieces += 1
            if pieces % _ZSTD_BLOCKS_TOGETHER == 0:
                yield b""
    except (IndexError, struct.error) as error:
        raise CorruptBatch("zstd data ends too early") from error
    has_checksum = bool(descriptor & 0x04)
    if position + (4 if has_checksum else 0) > end:
        raise CorruptBatch("zstd data ends too early")


def _zstd_frame_header_bytes(descriptor: int) -> int:
    """Bytes of magic, descriptor, window, dictionary id and content size."""
    is_single_segment = bool(descriptor & 0x20)
    window_bytes = 0 if is_single_segment else 1
    dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
    content_size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    return 5 + window_bytes + dictionary_bytes + content_size_bytes
