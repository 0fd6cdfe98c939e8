"""The reader of a batch query. Its bounds are resolved once, when Spark plans the read, and stay what they were."""

from collections.abc import Iterator, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from barnabas.base.errors import InvalidSetting
from barnabas.client.cluster import Cluster
from barnabas.spark import lookup
from barnabas.spark.offsets import OffsetRange, split_ranges
from barnabas.spark.options import SourceOptions
from barnabas.spark.reading import RangePartition, read_range, report_loss
from barnabas.spark.worker_process import shared_client


class BarnabasReader(DataSourceReader):
    """It takes no filters from Spark: with these, Spark mixes up the reads of a DataFrame that is used twice."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        client = shared_client(self._options.bootstrap, self._options.cluster)
        ranges = client.wait_for(
            lookup.with_retries(self._options, lambda: resolve_ranges(client.cluster, self._options))
        )
        pieces = split_ranges(ranges, self._options.partitions_min, self._options.records_per_partition_max)
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RangePartition):
            return read_range(self._options, self._schema, partition.range)
        return iter(())  # Spark's own, when there is nothing to read


async def resolve_ranges(cluster: Cluster, options: SourceOptions) -> list[OffsetRange]:
    """What a batch reads of each partition. InvalidSetting when it would end before it begins."""

    def on_loss(loss: str) -> None:
        report_loss(loss, options.is_failing_on_data_loss)

    partitions = await lookup.find_all_partitions(cluster, options.subscription)
    start = await lookup.resolve_start(cluster, options, partitions, on_loss)
    end = await lookup.resolve_end(cluster, options, partitions)
    for partition in partitions:
        if start[partition] > end[partition]:
            raise InvalidSetting(
                f"{partition}: the read would begin at offset {start[partition]} and end before it, at {end[partition]}"
            )
    return [OffsetRange(partition, start[partition], end[partition]) for partition in partitions]
