"""What a Spark task does: one range of one partition, as Arrow batches.

A batch that goes to Spark has at least ROWS_MIN rows or BYTES_MIN bytes of records, if the range has so much: Spark's
cost is by batch. It has at most BYTES_MAX bytes, but for a single batch of the log that is larger. The log's batches
are decoded straight into Arrow's memory; no Python object is made of a record.

A range whose records are not there any more fails the task, or is skipped with a warning where `failOnDataLoss` is
false; the message says which records were lost.
"""

import logging
from collections.abc import Iterator
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Offset
from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import UnknownTopic
from barnabas.client.offsets import end_offsets, start_offsets
from barnabas.client.reading.fetched import FetchedRun
from barnabas.client.reading.ranges import OffsetOutOfRange, RangeReader
from barnabas.records.batch import LOG_APPEND_TIME
from barnabas.records.columns import append_run
from barnabas.records.kernel import ColumnDecoder, scan_batches
from barnabas.spark.offsets import OffsetRange
from barnabas.spark.options import SourceOptions
from barnabas.spark.rows import RowMaker
from barnabas.spark.worker_process import shared_client

_LOG = logging.getLogger(__name__)

ROWS_MIN: Final = 50_000
BYTES_MIN: Final = 6 << 20
BYTES_MAX: Final = 16 << 20
HINT: Final = "set the option 'failOnDataLoss' to false to continue without them"


class DataLost(BarnabasError):  # noqa: N818 - named as the fact that it is
    """Records that the query has not read yet are gone."""


class RangePartition(InputPartition):
    """The part of a read that one task does."""

    def __init__(self, reading: OffsetRange) -> None:
        super().__init__(tuple(reading))
        self.range = reading


def report_loss(loss: str, is_failing: bool) -> None:
    """Raises DataLost, or warns and lets the query go on."""
    if is_failing:
        raise DataLost(f"{loss}; {HINT}")
    _LOG.warning("data was lost: %s", loss)


def read_range(options: SourceOptions, schema: StructType, reading: OffsetRange) -> Iterator[pa.RecordBatch]:
    client = shared_client(options.bootstrap, options.cluster, options.reading.timeout_seconds)
    reader = RangeReader(client.cluster, reading.partition, reading.start, reading.end, options.reading)
    rows = RowMaker(schema, reading.partition)
    collector = _Collector(rows, reading)
    try:
        while True:
            try:
                run = client.wait_for(reader.next_run())
            except OffsetOutOfRange as error:
                position = _after_loss(client, options, reading, error.offset)
                reader.seek(position)
                # A batch may begin with records that were deleted: they are in the log's bytes, and not in the log.
                yield from collector.rest()
                collector = _Collector(rows, reading._replace(start=position))
                continue
            except UnknownTopic as error:
                loss = (
                    f"{reading.partition} does not exist any more, nor do its records from offset {reader.position} "
                    f"to {reading.end - 1}"
                )
                report_loss(f"{loss} ({error})", options.is_failing_on_data_loss)
                break
            if run is None:
                break
            yield from collector.take(run)
        yield from collector.rest()
    finally:
        client.wait_for(reader.close())


def _after_loss(client: BlockingClient, options: SourceOptions, reading: OffsetRange, offset: Offset) -> Offset:
    """Where to go on when the log does not have an offset, if that is allowed."""
    partition = reading.partition
    first = client.wait_for(start_offsets(client.cluster, [partition]))[partition]
    last = client.wait_for(end_offsets(client.cluster, [partition]))[partition]
    if first > offset:
        lost_to = min(first, reading.end)
        loss = f"{partition}: the records from offset {offset} to {lost_to - 1} were deleted, the log begins at {first}"
    else:
        lost_to = reading.end
        loss = f"{partition}: the log ends at offset {last}, so there is nothing from {offset} to {reading.end - 1}"
    report_loss(loss, options.is_failing_on_data_loss)
    return lost_to


class _Collector:
    """Puts runs together until they are worth a batch."""

    def __init__(self, rows: RowMaker, reading: OffsetRange) -> None:
        self._rows = rows
        self._decoder = ColumnDecoder(reading.start, reading.end, rows.has_headers, column_bytes_max=BYTES_MAX)
        self._bytes = 0
        self._timestamp_type = 0

    def take(self, run: FetchedRun) -> Iterator[pa.RecordBatch]:
        for timestamp_type, batches in self._by_timestamp_type(run.batches):
            if timestamp_type != self._timestamp_type:
                yield from self.rest()
                self._timestamp_type = timestamp_type
            while len(batches):
                taken_bytes = append_run(self._decoder, batches, run.aborted)
                assert taken_bytes or len(self._decoder), "an empty decoder takes any whole batch"
                batches = batches[taken_bytes:]
                self._bytes += taken_bytes
                if len(batches) or len(self._decoder) >= ROWS_MIN or self._bytes >= BYTES_MIN:
                    yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        if len(self._decoder):
            yield self._rows.make(self._decoder.finish(), self._timestamp_type)
        self._bytes = 0

    def _by_timestamp_type(self, batches: memoryview) -> Iterator[tuple[int, memoryview]]:
        """The run in pieces whose records have one type; it is the batches that have it, and nearly always all."""
        if not self._rows.has_timestamp_type:
            yield 0, batches
            return
        start = position = 0
        current: int | None = None
        for header in scan_batches(batches, verify=False).headers:
            timestamp_type = 1 if header.attributes & LOG_APPEND_TIME else 0
            if current is not None and timestamp_type != current:
                yield current, batches[start:position]
                start = position
            current = timestamp_type
            position += header.size_bytes
        if current is not None:
            yield current, batches[start:position]
