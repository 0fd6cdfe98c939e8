"""Batches of other people's clients are read by Barnabas, and Barnabas's batches by them."""

from types import SimpleNamespace

import cramjam
import kafka.codec
import pytest
from confluent_kafka import Producer
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from barnabas.base.errors import InvalidRecords
from barnabas.records import reference
from barnabas.records.batch import HEADER_BYTES, Codec, read_header, split_batches
from barnabas.records.builder import BatchBuilder, Header, Record
from barnabas.records.checksum import compute_crc
from barnabas.records.compression import decompress
from barnabas.records.reader import read_records
from tests.support.capture import PRODUCER_EPOCH, PRODUCER_ID, CaptureBroker

RECORDS_BYTES_MAX = 1 << 24
FLUSH_SECONDS_MAX = 30

START_MS = 1_700_000_000_000
ODD_RECORDS = [
    Record(b"key", b"value", (), START_MS, 0),
    Record(None, b"no key", (Header("trace", b"\x00\x01"), Header("empty", b"")), START_MS + 500, 1),
    Record(b"tombstone", None, (Header("null", None), Header("n\u00e4me", b"x")), START_MS - 1000, 2),
    Record(b"", b"", (), START_MS + 1, 3),
]
PLAIN_RECORDS = [
    Record(b"k%d" % (offset % 7), b"value %d " % offset * 20, (), START_MS + offset, offset)
    for offset in range(4, 1000)
]
RECORDS = ODD_RECORDS + PLAIN_RECORDS


@pytest.fixture(autouse=True)
def _snappy_for_kafka_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python frames snappy itself and only needs raw blocks from a library called `snappy`."""
    blocks = SimpleNamespace(
        compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
        decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
    )
    monkeypatch.setattr(kafka.codec, "snappy", blocks)


def build_with_barnabas(codec: Codec) -> bytes:
    builder = BatchBuilder(codec=codec)
    for record in RECORDS:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return bytes(builder.build())


def build_with_kafka_python(codec: Codec) -> bytes:
    builder = MemoryRecordsBuilder(magic=2, compression_type=int(codec), batch_size=RECORDS_BYTES_MAX)
    for record in RECORDS:
        headers = [tuple(header) for header in record.headers]
        assert builder.append(record.timestamp, record.key, record.value, headers) is not None
    builder.close()
    return bytes(builder.buffer())


def produce_with_confluent(codec: Codec, **settings: object) -> list[bytes]:
    """What librdkafka sends for the records, as the partition data of one or more requests."""
    with CaptureBroker() as broker:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "compression.type": codec.name.lower(),
                "linger.ms": 50,
                **settings,
            }
        )
        for record in RECORDS:
            producer.produce(
                "topic",
                key=record.key,
                value=record.value,
                headers=[tuple(header) for header in record.headers],
                timestamp=record.timestamp,
            )
        assert producer.flush(FLUSH_SECONDS_MAX) == 0
        return broker.captured


def without_offset(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.headers, record.timestamp


@pytest.mark.parametrize("codec", Codec)
def test_kafka_python_batch_is_read_by_barnabas(codec: Codec) -> None:
    ((header, batch),) = split_batches(build_with_kafka_python(codec))
    assert header.crc == compute_crc(batch)
    assert header.codec_number == codec
    assert list(read_records(batch)) == RECORDS


@pytest.mark.parametrize("codec", Codec)
def test_barnabas_batch_is_read_by_kafka_python(codec: Codec) -> None:
    reader = MemoryRecords(build_with_barnabas(codec))
    batch = reader.next_batch()
    assert batch.validate_crc()
    records = [
        Record(
            record.key,
            record.value,
            tuple(Header(*header) for header in record.headers),
            record.timestamp,
            record.offset,
        )
        for record in batch
    ]
    assert records == RECORDS
    assert not reader.has_next()


def test_kafka_python_and_barnabas_build_the_same_uncompressed_records() -> None:
    ours, theirs = build_with_barnabas(Codec.NONE), build_with_kafka_python(Codec.NONE)
    assert ours[HEADER_BYTES:] == theirs[HEADER_BYTES:]
    assert read_header(ours)[5:] == read_header(theirs)[5:]


@pytest.mark.parametrize("codec", Codec)
def test_confluent_batches_are_read_by_barnabas(codec: Codec) -> None:
    records = []
    for captured in produce_with_confluent(codec):
        for header, batch in split_batches(captured):
            assert header.crc == compute_crc(batch)
            assert header.codec_number == codec
            records += read_records(batch)
    assert list(map(without_offset, records)) == list(map(without_offset, RECORDS))


def test_confluent_idempotent_batches_carry_producer_and_sequence() -> None:
    captured = produce_with_confluent(Codec.NONE, **{"enable.idempotence": True, "batch.num.messages": 300})
    headers = [header for data in captured for header, _ in split_batches(data)]
    assert len(headers) > 1
    assert {(header.producer_id, header.producer_epoch) for header in headers} == {(PRODUCER_ID, PRODUCER_EPOCH)}
    expected_sequence = 0
    for header in sorted(headers, key=lambda header: header.base_sequence):
        assert header.base_sequence == expected_sequence
        expected_sequence += header.count
    assert expected_sequence == len(RECORDS)


@pytest.mark.parametrize("implementation", ["reference", "_kernel"])
@pytest.mark.parametrize("client", ["barnabas", "kafka-python", "confluent"])
@pytest.mark.parametrize("codec", Codec)
def test_client_batch_passes_the_kernels_walk(implementation: str, client: str, codec: Codec) -> None:
    # Without a C compiler there is no compiled kernel to test.
    kernel = reference if implementation == "reference" else pytest.importorskip("barnabas.records._kernel")
    runs = {
        "barnabas": lambda: [build_with_barnabas(codec)],
        "kafka-python": lambda: [build_with_kafka_python(codec)],
        "confluent": lambda: produce_with_confluent(codec),
    }[client]()
    walked = 0
    for header, batch in (pair for run in runs for pair in split_batches(run)):
        records = decompress(header.codec_number, batch[HEADER_BYTES:], RECORDS_BYTES_MAX)
        summary = kernel.walk_records(records, header.count, header.base_timestamp)
        assert (summary.count, summary.max_timestamp) == (header.count, header.max_timestamp)
        keyless = tuple(index for index, record in enumerate(read_records(batch)) if record.key is None)
        if keyless:
            with pytest.raises(InvalidRecords) as caught:
                kernel.walk_records(records, header.count, header.base_timestamp, require_keys=True)
            assert caught.value.indexes == keyless
        walked += summary.count
    assert walked == len(RECORDS)
