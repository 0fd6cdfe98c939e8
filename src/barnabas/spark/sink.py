"""The writers of `format("barnabas")`, for batches and for streams in append and complete mode.

Each task sends its rows with an idempotent producer and is done when the cluster has them all. So a row that Spark
counts as written is in the log; but a task that fails after it wrote something is run again by Spark, and what it wrote
stays: every row arrives *at least once*. Complete mode writes the whole result again with each batch, as Spark's Kafka
connector does.

A task holds the batch that Spark hands it, what is gathered for topics with many partitions (16 MB at most), and the
producer's buffer (`kafka.buffer.memory`, 32 MB). The producer stays with its Python worker, which Spark uses for task
after task; a failed task takes its producer with it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.base.errors import InvalidSetting
from barnabas.client.blocking import BlockingClient
from barnabas.client.producing.producer import Producer
from barnabas.spark.sink_columns import USED, check_schema, rows_by_topic
from barnabas.spark.sink_options import SinkOptions, parse_sink_options
from barnabas.spark.worker_process import keep_producer, shared_client, take_producer

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

GATHERED_BYTES_MAX: Final = 16 << 20
PARTITION_BYTES_MIN: Final = 32 << 10
"""Rows are gathered until each partition gets about this much: a request for few rows costs as much as for many."""


@dataclass(frozen=True, slots=True)
class RowsWritten(WriterCommitMessage):
    """What a task tells the driver when the cluster has all its rows."""

    rows: int


def make_writer(schema: "StructType", options: Mapping[str, str], overwrite: bool) -> "BarnabasWriter":
    """InvalidSetting, on the driver, when options or columns will not do."""
    if overwrite:
        raise InvalidSetting("a topic can only be appended to: write with .mode('append')")
    parsed = parse_sink_options(options)
    check_schema(schema, parsed.topic)
    return BarnabasWriter(parsed)


def make_stream_writer(schema: "StructType", options: Mapping[str, str], overwrite: bool) -> "BarnabasStreamWriter":
    """The same for a stream; `overwrite`, which Spark sets in complete mode, appends the whole result again."""
    parsed = parse_sink_options(options)
    check_schema(schema, parsed.topic)
    return BarnabasStreamWriter(parsed)


class BarnabasWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return write_rows(self._options, iterator)


class BarnabasStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return write_rows(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is left to do: the tasks have waited for the cluster."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing can be taken back."""


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
    """One task's work; returns when the cluster has every row."""
    client = shared_client(options.bootstrap, options.cluster)
    producer = take_producer(options.bootstrap, options.cluster, options.producer)
    try:
        rows = _send_all(client, producer, options, batches)
        client.wait_for(producer.flush())
    except BaseException:
        client.wait_for(producer.close())
        raise
    keep_producer(options.bootstrap, options.cluster, options.producer, producer)
    return RowsWritten(rows)


def _send_all(
    client: BlockingClient, producer: Producer, options: SinkOptions, batches: Iterator[pa.RecordBatch]
) -> int:
    accepted_topics: set[str] = set()
    first_row = 0
    for batch in _gathered(client, options, batches):
        now_ms = client.cluster.clock.now_ms()
        for rows in rows_by_topic(batch, options.topic, first_row, now_ms, accepted_topics):
            sending = producer.send_columns(
                rows.topic, rows.columns, partitions=rows.partitions, row_numbers=rows.row_numbers
            )
            client.wait_for(sending)
        first_row += batch.num_rows
    return first_row


def _gathered(
    client: BlockingClient, options: SinkOptions, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The batches without the columns that are not written, joined where they are small for the topics' partitions."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        used = batch.select([index for index, name in enumerate(batch.schema.names) if name.lower() in USED])
        waiting.append(used)
        waiting_bytes += used.nbytes
        if waiting_bytes >= _bytes_wanted(client, options):
            yield _joined(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _bytes_wanted(client: BlockingClient, options: SinkOptions) -> int:
    """By the number of partitions, of all topics that this process has written to when rows name their own."""
    topics = client.cluster.view.topics
    chosen = None if options.topic is None else topics.get(options.topic)
    known = topics.values() if chosen is None else (chosen,)
    partitions = sum(len(topic.partitions) for topic in known)
    return min(GATHERED_BYTES_MAX, partitions * PARTITION_BYTES_MIN)
