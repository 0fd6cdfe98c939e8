"""Each case of what is accepted and refused was compared with what Apache Kafka 4.3.1's Java reader does."""

import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator

import cramjam
import lz4.frame
import pytest
import zstandard

from barnabas.base.errors import CorruptBatch
from barnabas.records.batch import HEADER_BYTES, Codec
from barnabas.records.compression import compress, decompress, decompress_chunks, expansion_max
from tests.support.bombs import hollow

DATA = b"".join(b"record %d of a batch;" % number for number in range(400))
HALF = len(DATA) // 2
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
SKIPPABLE_FRAME = struct.pack("<II", 0x184D2A50, 4) + b"abcd"


def gzip(data: bytes) -> bytes:
    return compress(Codec.GZIP, data)


def lz4_frame(data: bytes, **options: object) -> bytes:
    return lz4.frame.compress(data, **{"block_linked": False, "store_size": False, **options})


def zstd(data: bytes, **options: object) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


def zstd_stream(data: bytes, window_log: int) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=window_log, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(data) + stream.flush()


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def block(data: bytes) -> bytes:
    compressed = raw_snappy(data)
    return struct.pack(">i", len(compressed)) + compressed


def flip(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


ACCEPTED = {
    "gzip members": (Codec.GZIP, gzip(DATA[:HALF]) + gzip(DATA[HALF:])),
    "gzip with an empty member": (Codec.GZIP, gzip(DATA) + gzip(b"")),
    "gzip with a byte after it": (Codec.GZIP, gzip(DATA) + b"\x00"),
    "gzip with garbage after it": (Codec.GZIP, gzip(DATA) + b"garbage" * 8),
    "gzip with a short piece of a member after it": (Codec.GZIP, gzip(DATA) + gzip(b"x" * 100)[:15]),
    "snappy as one raw block": (Codec.SNAPPY, raw_snappy(DATA)),
    "snappy blocks": (Codec.SNAPPY, XERIAL_HEADER + block(DATA[:HALF]) + block(DATA[HALF:])),
    "snappy with an empty block": (Codec.SNAPPY, XERIAL_HEADER + block(b"") + block(DATA)),
    "snappy streams": (Codec.SNAPPY, XERIAL_HEADER + block(DATA[:HALF]) + XERIAL_HEADER + block(DATA[HALF:])),
    "snappy of another version": (Codec.SNAPPY, XERIAL_HEADER[:8] + struct.pack(">ii", 9, 9) + block(DATA)),
    "snappy with three bytes after it": (Codec.SNAPPY, XERIAL_HEADER + block(DATA) + b"xyz"),
    "lz4 with content size": (Codec.LZ4, lz4_frame(DATA, store_size=True)),
    "lz4 with checksums": (Codec.LZ4, lz4_frame(DATA, content_checksum=True, block_checksum=True)),
    "lz4 with 4 MB blocks": (Codec.LZ4, lz4_frame(DATA, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "lz4 with garbage after it": (Codec.LZ4, lz4_frame(DATA) + b"garbage!"),
    "lz4 with a second frame, not read": (Codec.LZ4, lz4_frame(DATA) + lz4_frame(b"more")),
    "zstd frames": (Codec.ZSTD, zstd(DATA[:HALF]) + zstd(b"") + zstd(DATA[HALF:])),
    "zstd with a checksum": (Codec.ZSTD, zstd(DATA, write_checksum=True)),
    "zstd skippable frames": (Codec.ZSTD, SKIPPABLE_FRAME + zstd(DATA) + SKIPPABLE_FRAME),
    "zstd with the largest window": (Codec.ZSTD, zstd_stream(DATA, 27)),
    "zstd with a cut empty frame after it": (Codec.ZSTD, zstd(DATA) + zstd(b"")[:6]),
}

REFUSED = {
    "codec 5": (5, DATA),
    "codec 7": (7, DATA),
    "gzip of nothing": (Codec.GZIP, b""),
    "gzip without its last byte": (Codec.GZIP, gzip(DATA)[:-1]),
    "gzip without its trailer": (Codec.GZIP, gzip(DATA)[:-8]),
    "gzip cut in the data": (Codec.GZIP, gzip(DATA)[:-20]),
    "gzip with a wrong checksum": (Codec.GZIP, flip(gzip(DATA), -5)),
    "gzip with a wrong length": (Codec.GZIP, flip(gzip(DATA), -1)),
    "zlib instead of gzip": (Codec.GZIP, zlib.compress(DATA)),
    "gzip with a broken second member": (Codec.GZIP, gzip(DATA) + gzip(b"")[:10] + b"\xff" * 40),
    "snappy of nothing": (Codec.SNAPPY, b""),
    "raw snappy without its last byte": (Codec.SNAPPY, raw_snappy(DATA)[:-1]),
    "raw snappy with a byte after it": (Codec.SNAPPY, raw_snappy(DATA) + b"x"),
    "snappy with a short header": (Codec.SNAPPY, XERIAL_HEADER[:12]),
    "snappy with a cut block": (Codec.SNAPPY, (XERIAL_HEADER + block(DATA))[:-1]),
    "snappy with a block of no bytes": (Codec.SNAPPY, XERIAL_HEADER + block(DATA) + bytes(4)),
    "snappy with a negative length": (Codec.SNAPPY, XERIAL_HEADER + b"\xff\xff\xff\xff" + block(DATA)),
    "snappy that claims 4 GB": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 100),
    "lz4 of nothing": (Codec.LZ4, b""),
    "lz4 without its end mark": (Codec.LZ4, lz4_frame(DATA)[:-4]),
    "lz4 cut in the end mark": (Codec.LZ4, lz4_frame(DATA)[:-1]),
    "lz4 cut in the data": (Codec.LZ4, lz4_frame(DATA)[:-8]),
    "lz4 with a wrong header checksum": (Codec.LZ4, flip(lz4_frame(DATA), 6)),
    "lz4 with a wrong block checksum": (Codec.LZ4, flip(lz4_frame(DATA, block_checksum=True), -5)),
    "lz4 with a wrong content checksum": (Codec.LZ4, flip(lz4_frame(DATA, content_checksum=True), -1)),
    "lz4 with dependent blocks": (Codec.LZ4, lz4_frame(DATA * 20, block_linked=True)),
    "lz4 skippable frame": (Codec.LZ4, SKIPPABLE_FRAME + lz4_frame(DATA)),
    "zstd of nothing": (Codec.ZSTD, b""),
    "zstd without its last byte": (Codec.ZSTD, zstd(DATA)[:-1]),
    "zstd without its checksum": (Codec.ZSTD, zstd(DATA, write_checksum=True)[:-4]),
    "zstd with a wrong checksum": (Codec.ZSTD, flip(zstd(DATA, write_checksum=True), -1)),
    "zstd with a header only": (Codec.ZSTD, zstd(DATA)[:6]),
    "zstd with a magic only": (Codec.ZSTD, zstd(DATA)[:4]),
    "zstd with a cut skippable frame": (Codec.ZSTD, SKIPPABLE_FRAME[:6]),
    "zstd with a byte after it": (Codec.ZSTD, zstd(DATA) + b"\x00"),
    "zstd with garbage after it": (Codec.ZSTD, zstd(DATA) + b"garbage!"),
    "zstd with too large a window": (Codec.ZSTD, zstd_stream(DATA, 28)),
}


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", DATA, DATA * 300], ids=["nothing", "byte", "small", "large"])
def test_compress_then_decompress_returns_the_data(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (-131072, 3, 22))],
)
def test_compress_at_every_end_of_kafkas_levels_can_be_read(codec: Codec, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, DATA, level), len(DATA)) == DATA


def test_compress_snappy_writes_the_frame_that_java_writes() -> None:
    compressed = compress(Codec.SNAPPY, DATA * 10)
    assert compressed.startswith(XERIAL_HEADER + block((DATA * 10)[: 32 * 1024]))


def test_compress_lz4_writes_the_frame_descriptor_that_java_writes() -> None:
    assert compress(Codec.LZ4, DATA)[:6] == bytes.fromhex("04224d186040")


@pytest.mark.parametrize(("codec", "data"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_decompress_what_kafka_reads_is_read(codec: int, data: bytes) -> None:
    assert decompress(codec, data, len(DATA)) == DATA


@pytest.mark.parametrize(("codec", "data"), REFUSED.values(), ids=REFUSED.keys())
def test_decompress_what_is_broken_is_refused(codec: int, data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, data, 1 << 24)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_decompress_any_truncation_is_refused_or_incomplete(codec: Codec) -> None:
    compressed = compress(codec, DATA)
    for length in range(len(compressed)):
        try:
            assert decompress(codec, compressed[:length], len(DATA)) != DATA
        except CorruptBatch:
            continue


@pytest.mark.parametrize("codec", Codec)
def test_decompress_more_than_the_limit_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(codec, compress(codec, DATA), len(DATA) - 1)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("chunk_bytes_max", [1, 7, 1000])
def test_chunks_are_never_larger_than_asked_for(codec: Codec, chunk_bytes_max: int) -> None:
    chunks = list(decompress_chunks(codec, memoryview(compress(codec, DATA)), chunk_bytes_max))
    assert b"".join(chunks) == DATA
    assert all(len(chunk) <= chunk_bytes_max for chunk in chunks)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_pieces_that_hold_nothing_are_told_of_by_empty_chunks(codec: Codec) -> None:
    """Whoever counts chunks bounds the time that it spends."""
    chunks = list(decompress_chunks(codec, hollow(codec)[HEADER_BYTES:]))
    assert len(chunks) > 1000
    assert sum(map(len, chunks)) < 20


@pytest.mark.parametrize("name", ["snappy as one raw block", "snappy blocks", "snappy that claims 4 GB"])
def test_expansion_of_snappy_is_known_beforehand(name: str) -> None:
    codec, compressed = {**ACCEPTED, **REFUSED}[name]
    expansion_bytes_max = expansion_max(codec, compressed)
    assert expansion_bytes_max is not None
    if name in ACCEPTED:
        assert len(DATA) <= expansion_bytes_max <= len(compressed) * 22
    else:
        assert expansion_bytes_max < 3000


def bomb_of(codec: Codec) -> tuple[bytes, int]:
    """A gigabyte of zeros (for gzip in 16 members, which are faster to make)."""
    zeros = bytes(1 << 26)
    if codec is Codec.GZIP:
        return gzip(zeros) * 16, 1 << 30
    stream = zstandard.ZstdCompressor().compressobj()
    return b"".join([stream.compress(zeros) for _ in range(16)] + [stream.flush()]), 1 << 30


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_bomb_of_a_gigabyte_is_streamed_in_flat_memory(codec: Codec) -> None:
    bomb, expected_bytes = bomb_of(codec)
    assert len(bomb) < 1 << 21
    tracemalloc.start()
    try:
        total_bytes = sum(map(len, decompress_chunks(codec, bomb)))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total_bytes == expected_bytes
    assert peak_bytes < 4 << 20


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bomb_is_refused_by_a_limited_reader_before_it_unfolds(codec: Codec) -> None:
    bomb = compress(codec, bytes(1 << 26))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch, match="more than"):
            decompress(codec, bomb, 1 << 20)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 << 20


def test_zstd_frame_that_claims_a_gigabyte_is_refused_at_once() -> None:
    single_segment_with_size = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", 1 << 30)
    last_raw_block = (1 | (1 << 3)).to_bytes(3, "little") + b"x"
    with pytest.raises(CorruptBatch):
        decompress(Codec.ZSTD, single_segment_with_size + last_raw_block, 1 << 31)


@pytest.mark.parametrize("make", [iter, list], ids=["lazy", "whole"])
def test_unknown_codec_is_refused_by_the_call_itself(make: Callable[[Iterator[object]], object]) -> None:
    with pytest.raises(CorruptBatch, match="codec 6"):
        make(decompress_chunks(6, DATA))
