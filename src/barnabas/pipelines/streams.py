"""Where a pipeline's records come from: the cluster's topics, or for `check` nothing at all.

`StoppableSource` is `format("barnabas")` with one thing more: while a file exists, a stream says that there is nothing
new. So a query runs dry after its batch and can be stopped without breaking one off. The file is on the driver's
machine, where the process that is asked for the latest offsets runs too.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from barnabas.pipelines.parsing import Parser
from barnabas.pipelines.spec import Pipeline, Source
from barnabas.pipelines.tables import FORMAT as TABLE_FORMAT
from barnabas.pipelines.tables import SCHEMA_DDL, TableSource
from barnabas.spark.options import SourceOptions
from barnabas.spark.source import BarnabasDataSource
from barnabas.spark.stream import BarnabasStreamReader

FORMAT: Final = "barnabas_pipeline"
STOP_FILE: Final = "stopfile"


class StoppableSource(BarnabasDataSource):
    """Takes the option `stopfile`, and passes all others on."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        stop_file = self.options.pop(STOP_FILE)
        return _StoppableReader(self._checked(schema, is_streaming=True), schema, stop_file)


class _StoppableReader(BarnabasStreamReader):
    def __init__(self, options: SourceOptions, schema: StructType, stop_file: str) -> None:
        super().__init__(options, schema)
        self._stop_file = stop_file

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        if os.path.exists(self._stop_file):
            return start
        return super().latestOffset(start, limit)


def register(spark: SparkSession) -> None:
    """Makes the formats of pipelines known to a session."""
    for source in (BarnabasDataSource, StoppableSource, TableSource):
        spark.dataSource.register(source)


@dataclass(frozen=True, slots=True)
class ClusterStreams:
    """Topics of the cluster."""

    spark: SparkSession
    pipeline: Pipeline
    stop_file: Path

    def stream(self, source: Source, parser: Parser, group: str) -> DataFrame:
        options = source_options(self.pipeline, source) | {"kafka.group.id": group, STOP_FILE: str(self.stop_file)}
        return self.spark.readStream.format(FORMAT).options(**options).schema(parser.record_schema()).load()

    def table(self, source: Source, parser: Parser) -> DataFrame:
        options = {
            "bootstrap": self.pipeline.bootstrap,
            "topic": source.topics[0],
            "refresh_ms": str(source.refresh_ms),
            "size_bytes_max": str(source.size_bytes_max),
        }
        return self.spark.read.format(TABLE_FORMAT).options(**options).load()


def source_options(pipeline: Pipeline, source: Source) -> dict[str, str]:
    """The options of `format("barnabas")` for a stream."""
    options = kafka_options(pipeline)
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    options["startingOffsets"] = source.starting
    options["failOnDataLoss"] = "true" if source.fails_on_data_loss else "false"
    if source.records_max_per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(source.records_max_per_batch)
    if source.tasks_min is not None:
        options["minPartitions"] = str(source.tasks_min)
    if "headers" in source.metadata:
        options["includeHeaders"] = "true"
    return options


def kafka_options(pipeline: Pipeline) -> dict[str, str]:
    settings = {f"kafka.{name}": value for name, value in pipeline.kafka.items()}
    return {**settings, "kafka.bootstrap.servers": pipeline.bootstrap}


class EmptyStreams:
    """Streams and tables of the right columns without a row, for Spark to analyse; `close` removes their directory."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._directory = tempfile.mkdtemp(prefix="barnabas-check-")

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def stream(self, source: Source, parser: Parser, group: str) -> DataFrame:
        return self._spark.readStream.schema(parser.record_schema()).format("parquet").load(self._directory)

    def table(self, source: Source, parser: Parser) -> DataFrame:
        return self._spark.createDataFrame([], SCHEMA_DDL)
