"""What the builder writes the reader reads, and hostile bytes fail in no other way than as corrupt."""

from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.base.errors import CorruptBatch
from barnabas.records.batch import Codec, read_header, split_batches
from barnabas.records.builder import BatchBuilder, Header, Record
from barnabas.records.checksum import compute_crc
from barnabas.records.compression import compress, decompress
from barnabas.records.reader import read_records

codecs = st.sampled_from(Codec)
maybe_bytes = st.none() | st.binary(max_size=200)
timestamps = st.integers(-1, 2**62)
header_keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=10) | st.binary(max_size=10).map(
    lambda key: key.decode("utf-8", "surrogateescape")
)
headers = st.lists(st.builds(Header, header_keys, maybe_bytes), max_size=4).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn) -> tuple[int, list[Record]]:
    base_offset = draw(st.integers(0, 2**62))
    offset = base_offset
    records = []
    for gap in draw(st.lists(st.integers(0, 1000), min_size=1, max_size=20)):
        offset += gap
        records.append(Record(draw(maybe_bytes), draw(maybe_bytes), draw(headers), draw(timestamps), offset))
        offset += 1
    return base_offset, records


def build(codec: Codec, base_offset: int, records: list[Record]) -> bytearray:
    builder = BatchBuilder(codec=codec, base_offset=base_offset)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers, record.offset)
    return builder.build()


@given(codecs, record_lists())
def test_records_built_are_read_back(codec: Codec, written: tuple[int, list[Record]]) -> None:
    base_offset, records = written
    batch = build(codec, base_offset, records)
    header = read_header(batch)
    assert list(read_records(batch)) == records
    assert header.crc == compute_crc(batch)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.last_offset == records[-1].offset


@given(st.lists(st.tuples(codecs, record_lists()), max_size=4))
def test_run_of_batches_is_split_into_the_same_batches(
    written: list[tuple[Codec, tuple[int, list[Record]]]],
) -> None:
    batches = [build(codec, base_offset, records) for codec, (base_offset, records) in written]
    assert [bytes(batch) for _, batch in split_batches(b"".join(batches))] == batches


@given(codecs, st.binary(max_size=3000), st.integers(1, 50))
def test_data_compressed_is_decompressed(codec: Codec, data: bytes, repeats: int) -> None:
    assert decompress(codec, compress(codec, data * repeats), len(data) * repeats) == data * repeats


@given(
    codecs,
    record_lists(),
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=5),
)
def test_batch_with_changed_bytes_is_read_or_refused_as_corrupt(
    codec: Codec, written: tuple[int, list[Record]], changes: list[tuple[int, int]]
) -> None:
    batch = build(codec, *written)
    for position, byte in changes:
        batch[position % len(batch)] = byte
    try:
        records = list(read_records(batch))
    except CorruptBatch:
        return
    assert len(records) == read_header(batch).count


@given(st.integers(0, 7), st.binary(max_size=300))
@example(Codec.SNAPPY, b"\x82SNAPPY\x00" + bytes(8))
@example(Codec.ZSTD, b"\x28\xb5\x2f\xfd" + bytes(30))
@example(Codec.LZ4, b"\x04\x22\x4d\x18\x60\x40\x82" + bytes(30))
@example(Codec.GZIP, b"\x1f\x8b\x08" + bytes(30))
def test_any_bytes_decompress_within_the_limit_or_are_refused_as_corrupt(codec_number: int, data: bytes) -> None:
    try:
        decompressed = decompress(codec_number, data, 1 << 16)
    except CorruptBatch:
        return
    assert len(decompressed) <= 1 << 16
