"""What a leader requires of a batch before it takes it into the log, and what it changes in it.

Pure. The checks are Kafka's for record batches of magic 2, with its error codes; in addition the offset deltas must be
consecutive, which Kafka requires of compressed batches only, and the records must not expand to more than
`EXPANDED_BYTES_MAX`. The leader changes, where the topic asks for it, the timestamps (log-append time), the codec
(`compression.type`), and a largest timestamp that the producer stated wrongly. The log patches offsets and leader epoch
later. The bounds of timestamps are for clients: the broker's own coordinators know what time it is.

A small batch may take long to check, because of what its records expand to, or because they are recompressed. So a
check consists of short steps of known cost: an event loop does a few of them itself, and leaves the rest to a worker
thread. Decompression is streamed, in bounded memory.
"""

from collections.abc import Generator
from typing import Final, NamedTuple

from barnabas.base.ids import NO_TIMESTAMP, TimestampMs
from barnabas.records import kernel
from barnabas.records.batch import CODEC_MASK, CONTROL, HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, read_header
from barnabas.records.checksum import rewrite, with_records
from barnabas.records.compression import (
    EXPANDED_BYTES_MAX,
    compress,
    decompress_chunks,
    expanded_records,
    expansion_max,
)
from barnabas.records.results import RecordSummary
from barnabas.storage.producers.producer_state import Origin
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, KafkaError

_BATCH_COST_MIN: Final = 16 << 10
"""What any batch costs, however small: there may be many."""
_STEP_COST_MIN: Final = 4 << 10
"""The cost of a step that handles less than this, or nothing."""
_COMPRESSING_COST: Final = 32
"""Compressing takes up to this many times as long as walking, by the codec and its level."""


class AcceptedBatch(NamedTuple):
    """A batch that may be appended as it stands, once offsets are assigned."""

    header: BatchHeader
    batch: memoryview
    append_time_ms: TimestampMs
    """When the log set the timestamps, or `NO_TIMESTAMP` where the producer's count."""


class BatchCheck:
    """The check of one batch, done step by step; `accepted` is there when the last one is done.

    The steps may be taken by different threads, one after the other. They touch the batch and nothing else.
    """

    __slots__ = ("_steps", "accepted")

    accepted: AcceptedBatch

    def __init__(self, batch: memoryview, config: LogConfig, now_ms: TimestampMs, origin: Origin) -> None:
        self._steps = _check(batch, config, now_ms, origin)

    def advance(self, cost_max: int) -> int | None:
        """Works until it is done, or has cost more than `cost_max`. What it cost when it is done, None when it is not.

        Raises why the batch is refused. A unit of cost is a byte that is looked at.
        """
        cost = 0
        try:
            while cost <= cost_max:
                cost += next(self._steps)
        except StopIteration as end:
            self.accepted = end.value
            return cost
        return None

    def finish(self) -> AcceptedBatch:
        """Does whatever is left."""
        try:
            while True:
                next(self._steps)
        except StopIteration as end:
            self.accepted = end.value
        return self.accepted


def accept_batch(batch: memoryview, config: LogConfig, now_ms: TimestampMs, origin: Origin) -> AcceptedBatch:
    """Checks the one batch in a buffer and brings it into the form the topic wants, in place if that can be."""
    return BatchCheck(batch, config, now_ms, origin).finish()


def _check(
    batch: memoryview, config: LogConfig, now_ms: TimestampMs, origin: Origin
) -> Generator[int, None, AcceptedBatch]:
    """Yields the cost of each step: before it is taken where that is known, or else afterwards."""
    if len(batch) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(batch)} bytes, but max.message.bytes is {config.max_message_bytes}",
        )
    yield max(_BATCH_COST_MIN, len(batch))
    header, summary = kernel.inspect_batch(batch, config.is_compacted)
    is_control = header.attributes & CONTROL
    if origin is Origin.CLIENT:
        _check_client_header(header)
    expanded_bytes = len(batch)
    if summary is None:
        summary, expanded_bytes = yield from _walk_compressed(header, batch, config)
    is_append_time = config.is_log_append_time
    if origin is Origin.CLIENT and not (is_append_time or is_control):
        _check_timestamps(summary, config, now_ms)
    if batch.readonly:
        batch = memoryview(bytearray(batch))
    attributes, max_timestamp = header.attributes & ~LOG_APPEND_TIME, max(summary.max_timestamp, NO_TIMESTAMP)
    if config.stored_codec is not None and is_recompressed(header, config):
        yield expanded_bytes * _COMPRESSING_COST
        batch = _recompress(header, batch, config)
        attributes = attributes & ~CODEC_MASK | read_header(batch).codec_number
    if is_append_time:
        attributes |= LOG_APPEND_TIME
        max_timestamp = now_ms
    if attributes != header.attributes or max_timestamp != header.max_timestamp:
        rewrite(batch, attributes, max_timestamp)
        header = read_header(batch)
    return AcceptedBatch(header, batch, now_ms if is_append_time else NO_TIMESTAMP)


def _walk_compressed(
    header: BatchHeader, batch: memoryview, config: LogConfig
) -> Generator[int, None, tuple[RecordSummary, int]]:
    """Walks the records without making objects of them; also says how many bytes they expand to."""
    records = batch[HEADER_BYTES:]
    walker = kernel.RecordWalker(header.count, header.base_timestamp, config.is_compacted)
    known_bytes_max = expansion_max(header.codec_number, records)
    if known_bytes_max is not None:
        yield known_bytes_max  # one step may take all of it
    expanded_bytes = 0
    for chunk in decompress_chunks(header.codec_number, records):
        expanded_bytes += len(chunk)
        if expanded_bytes > EXPANDED_BYTES_MAX:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {len(batch)} bytes expands to more than {EXPANDED_BYTES_MAX}",
            )
        walker.feed(chunk)
        yield max(_STEP_COST_MIN, len(chunk))
    return walker.finish(), expanded_bytes


def is_recompressed(header: BatchHeader, config: LogConfig) -> bool:
    """Whether accepting this batch means recompressing it."""
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
    records = expanded_records(header, batch)
    attributes = header.attributes & ~CODEC_MASK | codec
    compressed = compress(codec, records, config.compression_level(codec))
    packed = with_records(header._replace(attributes=attributes), compressed)
    if len(packed) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{len(packed)} bytes as {config.compression_type}, but max.message.bytes is {config.max_message_bytes}",
        )
    return memoryview(packed)
