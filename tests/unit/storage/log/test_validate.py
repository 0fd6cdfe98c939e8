"""What a leader refuses, and what it changes in the batches that it takes."""

from dataclasses import replace
from typing import Any

import pytest

from barnabas.base.errors import CorruptBatch, InvalidRecords
from barnabas.records.batch import LOG_APPEND_TIME, Codec, read_header
from barnabas.records.builder import BatchBuilder
from barnabas.records.checksum import compute_crc, rewrite, with_records
from barnabas.records.reader import read_records
from barnabas.storage.log.validate import AcceptedBatch, BatchCheck, accept_batch, is_recompressed
from barnabas.storage.producers.producer_state import Origin
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.bombs import hollow, zstd_bomb
from tests.support.log_model import data_batch, marker_batch

NOW_MS = 1_700_000_000_000
PLAIN = LogConfig()
EVERY_CODEC = list(Codec)


def accept(batch: bytes | bytearray, config: LogConfig = PLAIN, origin: Origin = Origin.CLIENT) -> AcceptedBatch:
    return accept_batch(memoryview(batch), config, NOW_MS, origin)


def refusal(batch: bytes | bytearray, config: LogConfig = PLAIN, origin: Origin = Origin.CLIENT) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        accept(batch, config, origin)
    return refused.value.code


def changed(batch: bytearray, **fields: Any) -> bytearray:
    """The batch with other fields in its header, and the checksum that belongs to them."""
    return with_records(read_header(batch)._replace(**fields), bytes(batch[61:]))


def batch_of(*timestamps: int, codec: Codec = Codec.NONE, **producer: Any) -> bytearray:
    return data_batch(timestamps or [NOW_MS], 30, codec=codec, **producer)


def batch_of_value(codec: Codec, value: bytes) -> bytearray:
    builder = BatchBuilder(codec=codec)
    builder.append(NOW_MS, b"key", value)
    return builder.build()


@pytest.mark.parametrize("codec", EVERY_CODEC)
def test_good_batch_is_taken_as_it_is(codec: Codec) -> None:
    batch = batch_of(NOW_MS, NOW_MS - 5, codec=codec)
    before = bytes(batch)
    accepted = accept(batch)
    assert bytes(accepted.batch) == before
    assert accepted.header == read_header(before)
    assert accepted.append_time_ms == -1


def test_read_only_batch_is_copied_before_it_can_be_patched() -> None:
    accepted = accept(bytes(batch_of()))
    assert not accepted.batch.readonly


def test_writable_batch_is_not_copied() -> None:
    batch = batch_of()
    accepted = accept(batch)
    batch[0] = 1
    assert accepted.batch[0] == 1


def test_batch_above_max_message_bytes_is_too_large() -> None:
    batch = batch_of()
    assert refusal(batch, LogConfig(max_message_bytes=len(batch) - 1)) is ErrorCode.MESSAGE_TOO_LARGE
    assert accept(batch, LogConfig(max_message_bytes=len(batch)))


@pytest.mark.parametrize("position", [17, 25, 60, 70])
def test_batch_with_a_flipped_byte_is_corrupt(position: int) -> None:
    batch = batch_of()
    batch[position] ^= 1
    with pytest.raises(CorruptBatch):
        accept(batch)


def test_control_batch_of_a_client_is_invalid() -> None:
    assert refusal(marker_batch(1, 0, NOW_MS, is_commit=True)) is ErrorCode.INVALID_RECORD


def test_control_batch_of_the_coordinator_is_taken() -> None:
    assert accept(marker_batch(1, 0, NOW_MS, is_commit=True), origin=Origin.COORDINATOR).header.is_control


def test_batch_without_records_is_invalid() -> None:
    assert refusal(BatchBuilder().build(last_offset=0)) is ErrorCode.INVALID_RECORD


def test_batch_whose_count_is_not_its_offsets_is_invalid() -> None:
    batch = changed(batch_of(NOW_MS, NOW_MS, NOW_MS), last_offset_delta=1)
    assert refusal(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("count", [1, -1])
def test_batch_with_another_count_than_records_is_invalid(count: int) -> None:
    with pytest.raises(InvalidRecords):
        accept(changed(batch_of(NOW_MS, NOW_MS, NOW_MS), count=count))


def test_producer_without_a_sequence_is_invalid() -> None:
    batch = batch_of(producer_id=5, producer_epoch=0, base_sequence=-1)
    assert refusal(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", EVERY_CODEC)
def test_batch_with_fewer_records_than_it_says_is_invalid(codec: Codec) -> None:
    batch = changed(batch_of(NOW_MS, NOW_MS, codec=codec), count=3, last_offset_delta=2)
    with pytest.raises(InvalidRecords):
        accept(batch)


def test_batch_with_offsets_that_leave_one_out_is_invalid() -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, None, b"")
    builder.append(NOW_MS, None, b"", offset=2)
    batch = changed(builder.build(), last_offset_delta=1)
    with pytest.raises(InvalidRecords):
        accept(batch)


def test_unknown_codec_is_refused() -> None:
    header = read_header(batch_of())
    batch = with_records(header._replace(attributes=5), b"nothing")
    with pytest.raises((CorruptBatch, KafkaError)):
        accept(batch)


def test_compacted_topic_refuses_a_record_without_a_key() -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"key", b"")
    builder.append(NOW_MS, None, b"")
    with pytest.raises(InvalidRecords) as refused:
        accept(builder.build(), LogConfig(cleanup_policy=frozenset({"compact"})))
    assert refused.value.indexes == (1,)


def test_compacted_topic_takes_markers() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    assert accept(marker_batch(1, 0, NOW_MS, is_commit=True), config, Origin.COORDINATOR)


@pytest.mark.parametrize(
    "timestamps",
    [
        *([NOW_MS + 101], [NOW_MS, NOW_MS + 101], [NOW_MS - 201], [NOW_MS, NOW_MS - 201]),
        *([-2], [NOW_MS, -2], [-1, -2], [-(2**63)], [2**63 - 1]),
    ],
)
def test_timestamp_out_of_bounds_is_invalid(timestamps: list[int]) -> None:
    config = LogConfig(message_timestamp_before_max_ms=200, message_timestamp_after_max_ms=100)
    assert refusal(batch_of(*timestamps), config) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("timestamp", [NOW_MS + 100, NOW_MS - 200, -1])
def test_timestamp_within_bounds_or_absent_is_taken(timestamp: int) -> None:
    config = LogConfig(message_timestamp_before_max_ms=200, message_timestamp_after_max_ms=100)
    assert accept(batch_of(timestamp), config).header.max_timestamp == timestamp


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_timestamp_before_1970_is_bounded_as_any_other(codec: Codec) -> None:
    unbounded = LogConfig()
    assert refusal(batch_of(-(2**63), codec=codec), unbounded) is ErrorCode.INVALID_TIMESTAMP
    # As in Kafka, a batch whose timestamps are all negative has none for its largest.
    assert accept(batch_of(-2, -3, codec=codec), unbounded).header.max_timestamp == -1


def test_marker_with_any_timestamp_is_taken() -> None:
    config = LogConfig(message_timestamp_before_max_ms=200)
    assert accept(marker_batch(1, 0, 5, is_commit=True), config, Origin.COORDINATOR)


def test_largest_timestamp_that_is_stated_wrongly_is_put_right() -> None:
    batch = batch_of(NOW_MS, NOW_MS - 7)
    rewrite(memoryview(batch), 0, NOW_MS + 50)
    accepted = accept(batch)
    assert accepted.header.max_timestamp == NOW_MS
    assert compute_crc(accepted.batch) == accepted.header.crc


@pytest.mark.parametrize("codec", EVERY_CODEC)
def test_log_append_time_is_set_for_the_whole_batch(codec: Codec) -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0)
    accepted = accept(batch_of(5, NOW_MS + 99, codec=codec), config)
    assert accepted.append_time_ms == NOW_MS
    assert accepted.header.attributes == codec | LOG_APPEND_TIME
    assert {record.timestamp for record in read_records(accepted.batch)} == {NOW_MS}
    assert compute_crc(accepted.batch) == accepted.header.crc


def test_log_append_time_that_a_client_claims_is_taken_back() -> None:
    batch = batch_of(NOW_MS - 3)
    rewrite(memoryview(batch), LOG_APPEND_TIME, NOW_MS - 1)
    accepted = accept(batch)
    assert not accepted.header.is_log_append_time
    assert accepted.header.max_timestamp == NOW_MS - 3


@pytest.mark.parametrize("codec", EVERY_CODEC)
@pytest.mark.parametrize("stored", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_topic_codec_recompresses_every_other(codec: Codec, stored: str) -> None:
    config = LogConfig(compression_type=stored)
    batch = batch_of(NOW_MS, NOW_MS - 1, codec=codec, producer_id=3, producer_epoch=1, base_sequence=4)
    records = list(read_records(batch))
    accepted = accept(batch, config)
    assert accepted.header.codec_number == config.stored_codec
    assert list(read_records(accepted.batch)) == records
    assert compute_crc(accepted.batch) == accepted.header.crc
    assert accepted.header[6:] == read_header(batch)[6:]
    assert is_recompressed(read_header(batch), config) == (codec != config.stored_codec)


def test_marker_is_never_recompressed() -> None:
    marker = marker_batch(1, 0, NOW_MS, is_commit=True)
    assert not is_recompressed(read_header(marker), LogConfig(compression_type="zstd"))
    assert accept(marker, LogConfig(compression_type="zstd"), Origin.COORDINATOR).header.codec_number == Codec.NONE


def test_batch_that_grows_beyond_the_limit_by_recompression_is_too_large() -> None:
    batch = data_batch([NOW_MS], 5_000, codec=Codec.ZSTD)
    config = LogConfig(max_message_bytes=1_000, compression_type="uncompressed")
    assert refusal(batch, config) is ErrorCode.MESSAGE_TOO_LARGE
    assert accept(batch, replace(config, compression_type="producer"))


@pytest.mark.parametrize("stored", ["producer", "uncompressed", "gzip", "zstd"])
def test_batch_that_expands_beyond_the_limit_is_too_large_whatever_it_is_stored_as(stored: str) -> None:
    assert refusal(zstd_bomb(144), LogConfig(compression_type=stored)) is ErrorCode.MESSAGE_TOO_LARGE


def test_batch_that_expands_up_to_the_limit_is_taken() -> None:
    bomb = changed(bytearray(zstd_bomb(112)), base_timestamp=NOW_MS, max_timestamp=NOW_MS)
    assert accept(bomb).header.count == 7


@pytest.mark.parametrize(
    ("batch", "compression_type"),
    [
        (batch_of(codec=Codec.NONE), "producer"),
        (data_batch([NOW_MS] * 400, 900, codec=Codec.ZSTD), "producer"),
        (data_batch([NOW_MS] * 400, 900, codec=Codec.GZIP), "producer"),
        (data_batch([NOW_MS], 5_000), "gzip"),
    ],
    ids=["plain", "zstd", "gzip", "recompressed"],
)
def test_check_of_an_ordinary_batch_costs_little(batch: bytearray, compression_type: str) -> None:
    check = BatchCheck(memoryview(batch), LogConfig(compression_type=compression_type), NOW_MS, Origin.CLIENT)
    assert check.advance(1 << 20) is not None
    assert check.accepted.header.count == read_header(batch).count


@pytest.mark.parametrize(
    ("batch", "compression_type"),
    [
        (zstd_bomb(112), "producer"),
        (hollow(Codec.GZIP), "producer"),
        (hollow(Codec.SNAPPY), "producer"),
        (hollow(Codec.ZSTD), "producer"),
        (batch_of_value(Codec.SNAPPY, bytes(4 << 20)), "producer"),
        (batch_of_value(Codec.NONE, bytes(500_000)), "gzip"),
        (batch_of_value(Codec.NONE, bytes(1_100_000)), "producer"),
    ],
    ids=["expands", "empty members", "empty blocks", "empty zstd blocks", "one snappy block", "recompressed", "large"],
)
def test_check_that_takes_long_stops_when_its_cost_is_spent_and_can_go_on(batch: bytes, compression_type: str) -> None:
    config = LogConfig(compression_type=compression_type, max_message_bytes=2 << 20)
    stamped = changed(bytearray(batch), base_timestamp=NOW_MS, max_timestamp=NOW_MS)
    check = BatchCheck(memoryview(stamped), config, NOW_MS, Origin.CLIENT)
    assert check.advance(1 << 20) is None
    assert check.finish().header.count == read_header(batch).count
