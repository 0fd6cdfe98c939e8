"""A compacted topic as a table: the latest record of each key, without the keys that a tombstone removed.

It is a data source of Spark's Python API with one partition, whose `read` goes to the end of the topic as it is *then*.
So a join of a stream with a table sees what came meanwhile, batch by batch, which a batch read of a topic would not:
its end is fixed when the plan is made. A worker keeps the table; when it is older than `refresh` it reads only what
came since. Larger than `size_max` (keys and values) is an error that says so, before memory runs out.

A key belongs to one partition. After partitions were added it may be in two; then the record with the later timestamp
counts. A recreated topic is noticed by its id, a truncated one by its end; both are read again from the start.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from barnabas.base.clock import Clock, SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.client.offsets import EARLIEST, Isolation, end_offsets, start_offsets
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.records.arrow import to_arrow
from barnabas.spark.worker_process import Kept, shared_client

FORMAT: Final = "barnabas_table"
SCHEMA_DDL: Final = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
_ARROW_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
_BATCH_ROWS: Final = 100_000
_MERGE_ROWS: Final = 200_000


class TableTooLarge(BarnabasError):  # noqa: N818 - named as the fact that it is
    """The table does not fit its size limit."""


@dataclass(slots=True)
class KeptTable:
    """What a worker keeps of a topic: the rows, how far they reach, and when that was looked at."""

    topic_id: UUID
    rows: pa.Table
    positions: dict[int, Offset] = field(default_factory=dict)
    read_at: float = float("-inf")


_tables: Final = Kept[tuple[str, str], KeptTable]()
"""The tables of this worker process by cluster and topic."""


def current_table(
    bootstrap: str, topic: str, refresh_seconds: float, size_bytes_max: int, clock: Clock | None = None
) -> pa.Table:
    """The table, at most `refresh_seconds` old."""
    clock = SystemClock() if clock is None else clock
    kept = _tables.get((bootstrap, topic))
    if kept is not None and clock.monotonic() - kept.read_at < refresh_seconds:
        return kept.rows
    client = shared_client(bootstrap)
    started_at = clock.monotonic()
    kept = _brought_up(client, topic, kept, size_bytes_max)
    kept.read_at = started_at
    _tables.put((bootstrap, topic), kept)
    return kept.rows


def _brought_up(client: BlockingClient, topic: str, kept: KeptTable | None, size_bytes_max: int) -> KeptTable:
    metadata = client.wait_for(client.cluster.refresh([topic])).topic(topic)
    partitions = [TopicPartition(topic, partition.index) for partition in metadata.partitions]
    starts = client.wait_for(start_offsets(client.cluster, partitions))
    ends = client.wait_for(end_offsets(client.cluster, partitions, Isolation.READ_COMMITTED))
    by_index = {one.partition: end for one, end in ends.items()}
    if (
        kept is None
        or kept.topic_id != metadata.topic_id
        or any(position > by_index.get(index, 0) for index, position in kept.positions.items())
    ):
        kept = KeptTable(metadata.topic_id, _ARROW_SCHEMA.empty_table())
    positions = {one: max(start, kept.positions.get(one.partition, 0)) for one, start in starts.items()}
    rows = kept.rows
    waiting: list[pa.RecordBatch] = []
    for batch in _read(client, topic, positions, ends):
        waiting.append(batch)
        if sum(len(one) for one in waiting) >= _MERGE_ROWS:
            rows = _merged(topic, rows, waiting, size_bytes_max)
            waiting = []
    if waiting:
        rows = _merged(topic, rows, waiting, size_bytes_max)
    return KeptTable(metadata.topic_id, rows, by_index)


def _read(
    client: BlockingClient, topic: str, positions: dict[TopicPartition, Offset], ends: dict[TopicPartition, Offset]
) -> Iterator[pa.RecordBatch]:
    """Everything from the positions to the ends."""

    async def open_consumer() -> Consumer:
        options = ConsumerOptions(isolation=Isolation.READ_COMMITTED, out_of_range=EARLIEST)
        consumer = Consumer(client.cluster, options)
        consumer.assign({one: offset for one, offset in positions.items() if offset < ends[one]})
        return consumer

    consumer = client.wait_for(open_consumer())
    try:
        while consumer.positions:
            for run in client.wait_for(consumer.poll()):
                yield _record_batch(
                    topic, run.partition.partition, to_arrow(run.columns(end_offset=ends[run.partition]))
                )
            for one in [one for one, offset in consumer.positions.items() if offset >= ends[one]]:
                consumer.drop(one)
    finally:
        client.wait_for(consumer.close())


def _record_batch(topic: str, partition: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    count = batch.num_rows
    return pa.RecordBatch.from_arrays(
        [
            batch.column("key"),
            batch.column("value"),
            pa.repeat(pa.scalar(topic), count),
            pa.repeat(pa.scalar(partition, pa.int32()), count),
            batch.column("offset"),
            batch.column("timestamp").cast(pa.timestamp("us", "UTC")),
        ],
        schema=_ARROW_SCHEMA,
    )


def _merged(topic: str, rows: pa.Table, batches: Sequence[pa.RecordBatch], size_bytes_max: int) -> pa.Table:
    merged = latest_rows(pa.concat_tables([rows, pa.Table.from_batches(batches)]))
    size_bytes = merged.nbytes
    if size_bytes > size_bytes_max:
        raise TableTooLarge(
            f"the table of topic '{topic}' has {size_bytes} bytes and more, over the limit of {size_bytes_max};"
            " raise 'size_max' of the source, or read the topic as a stream"
        )
    return merged


def latest_rows(rows: pa.Table) -> pa.Table:
    """The last row of each key by timestamp and offset; none of a key whose last value is null, none without a key."""
    rows = rows.filter(pc.is_valid(rows["key"]))
    # Within a partition offsets decide, whatever the timestamps say; between partitions only timestamps can.
    last = _last_by(rows.sort_by([("offset", "ascending")]), ["key", "partition"])
    if len(pc.unique(last["partition"])) > 1:
        last = _last_by(last.sort_by([("timestamp", "ascending"), ("partition", "ascending")]), ["key"])
    return last.filter(pc.is_valid(last["value"])).combine_chunks()


def _last_by(rows: pa.Table, keys: list[str]) -> pa.Table:
    numbered = rows.append_column("_row", pa.array(range(rows.num_rows), pa.int64()))
    chosen = numbered.group_by(keys, use_threads=False).aggregate([("_row", "max")])["_row_max"]
    return rows.take(chosen.combine_chunks().sort())


class TableSource(DataSource):
    """`format("barnabas_table")`, for pipelines; options `bootstrap`, `topic`, `refresh_ms`, `size_bytes_max`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return _TableReader(dict(self.options), schema.fieldNames())


class _TableReader(DataSourceReader):
    def __init__(self, options: dict[str, str], names: list[str]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        options = self._options
        table = current_table(
            options["bootstrap"], options["topic"], int(options["refresh_ms"]) / 1000, int(options["size_bytes_max"])
        )
        yield from table.select(self._names).to_batches(_BATCH_ROWS)
