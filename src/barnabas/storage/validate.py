"""What a leader requires of a batch before it takes it into the log, and what it changes in it.

Pure. The checks are Kafka's for record batches of magic 2, with its error codes; in addition the offset deltas must be
consecutive, which Kafka requires of compressed batches only. Changed are, where the topic asks for it, the timestamps
(log-append time), the codec (`compression.type`), and a largest timestamp that the producer stated wrongly. Offsets and
leader epoch are patched later, by the log. The bounds of timestamps are for clients: the broker's own coordinators are
the ones to know what time it is.

Decompression is streamed: a batch that claims to hold gigabytes is walked in bounded memory.
"""

from typing import Final, NamedTuple

from barnabas.base.ids import NO_TIMESTAMP, TimestampMs
from barnabas.records import kernel
from barnabas.records.batch import CODEC_MASK, CONTROL, HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, Codec, read_header
from barnabas.records.checksum import rewrite, with_records
from barnabas.records.compression import compress, decompress, decompress_chunks
from barnabas.records.results import RecordSummary
from barnabas.storage.producer_state import Origin
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, KafkaError

_RECOMPRESSED_RATIO_MAX: Final = 64
"""A batch that unpacks to more than this many times `max.message.bytes` is not recompressed but refused."""


class AcceptedBatch(NamedTuple):
    """A batch that may be appended as it stands, once offsets are assigned."""

    header: BatchHeader
    batch: memoryview
    append_time_ms: TimestampMs
    """When the log set the timestamps, or `NO_TIMESTAMP` where the producer's count."""


def accept_batch(batch: memoryview, config: LogConfig, now_ms: TimestampMs, origin: Origin) -> AcceptedBatch:
    """Checks the one batch in a buffer and brings it into the form the topic wants, in place if that can be."""
    if len(batch) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(batch)} bytes, but max.message.bytes is {config.max_message_bytes}",
        )
    header, summary = kernel.inspect_batch(batch, config.is_compacted)
    is_control = header.attributes & CONTROL
    if origin is Origin.CLIENT:
        _check_client_header(header)
    if summary is None:
        summary = summarize(header, batch, require_keys=config.is_compacted)
    is_append_time = config.is_log_append_time
    if origin is Origin.CLIENT and not (is_append_time or is_control):
        _check_timestamps(summary, config, now_ms)
    if batch.readonly:
        batch = memoryview(bytearray(batch))
    attributes, max_timestamp = header.attributes & ~LOG_APPEND_TIME, max(summary.max_timestamp, NO_TIMESTAMP)
    if config.stored_codec is not None and is_recompressed(header, config):
        batch = _recompress(header, batch, config)
        attributes = attributes & ~CODEC_MASK | read_header(batch).codec_number
    if is_append_time:
        attributes |= LOG_APPEND_TIME
        max_timestamp = now_ms
    if attributes != header.attributes or max_timestamp != header.max_timestamp:
        rewrite(batch, attributes, max_timestamp)
        header = read_header(batch)
    return AcceptedBatch(header, batch, now_ms if is_append_time else NO_TIMESTAMP)


def summarize(header: BatchHeader, batch: memoryview, *, require_keys: bool = False) -> RecordSummary:
    """Walks the records of a batch without making objects of them."""
    records = batch[HEADER_BYTES:]
    if header.codec_number == Codec.NONE:
        return kernel.walk_records(records, header.count, header.base_timestamp, require_keys)
    walker = kernel.RecordWalker(header.count, header.base_timestamp, require_keys)
    for chunk in decompress_chunks(header.codec_number, records):
        walker.feed(chunk)
    return walker.finish()


def is_recompressed(header: BatchHeader, config: LogConfig) -> bool:
    """Whether accepting this batch means compressing it anew, which for a big one should leave the event loop."""
    wanted = config.stored_codec
    return wanted is not None and wanted != header.codec_number and not header.is_control


def _check_client_header(header: BatchHeader) -> None:
    if header.attributes & CONTROL:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients are not allowed to write control records")
    if header.count <= 0 or header.last_offset_delta != header.count - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{header.count} records do not span the offsets 0 to {header.last_offset_delta}",
        )
    if header.base_sequence < 0 and header.has_producer:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"base sequence {header.base_sequence} from producer {header.producer_id}",
        )


def _check_timestamps(summary: RecordSummary, config: LogConfig, now_ms: TimestampMs) -> None:
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    if summary.max_timestamp > latest or (summary.min_timestamp < earliest and summary.min_timestamp != NO_TIMESTAMP):
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"the records' timestamps, {summary.min_timestamp} to {summary.max_timestamp}, are not within "
            f"{earliest} to {latest} (message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
        )


def _recompress(header: BatchHeader, batch: memoryview, config: LogConfig) -> memoryview:
    """The same records under the topic's codec: their encoding does not depend on it."""
    codec = config.stored_codec
    assert codec is not None
    records = decompress(header.codec_number, batch[HEADER_BYTES:], config.max_message_bytes * _RECOMPRESSED_RATIO_MAX)
    attributes = header.attributes & ~CODEC_MASK | codec
    compressed = compress(codec, records, config.compression_level(codec))
    packed = with_records(header._replace(attributes=attributes), compressed)
    if len(packed) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{len(packed)} bytes as {config.compression_type}, but max.message.bytes is {config.max_message_bytes}",
        )
    return memoryview(packed)
