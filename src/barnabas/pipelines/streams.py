"""Where a pipeline's records come from: the cluster's topics, or for `check` nothing at all.

All streams of a run have one stop file (option `stopFile` of the source), by which they run dry after their batches.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from barnabas.pipelines.parsing import Parser
from barnabas.pipelines.spec import Pipeline, Sink, Source
from barnabas.pipelines.tables import FORMAT as TABLE_FORMAT
from barnabas.pipelines.tables import SCHEMA_DDL, TableSource
from barnabas.spark import option_names, sink_options
from barnabas.spark.source import FORMAT, BarnabasDataSource

_NAMED_STREAMS: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_OF_SOURCES: Final = frozenset(
    (
        *option_names.CONSUMER_SETTINGS,
        *option_names.CONSUMER_SETTINGS_WITHOUT_EFFECT,
        *option_names.REFUSED_SETTINGS,
    )
)
_OF_SINKS: Final = frozenset(
    (
        *sink_options.PRODUCER_SETTINGS,
        *sink_options.PRODUCER_SETTINGS_WITHOUT_EFFECT,
        *sink_options.REFUSED_SETTINGS,
    )
)


def register(spark: SparkSession) -> None:
    """Makes the formats of pipelines known to a session, and the session the active one of the calling thread.

    Spark looks for formats in the active session: for that of a stream's sink, and for one that is there already.
    """
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    for source in (BarnabasDataSource, TableSource):
        spark.dataSource.register(source)


@dataclass(slots=True)
class ClusterStreams:
    """Topics of the cluster."""

    spark: SparkSession
    pipeline: Pipeline
    stop_file: Path
    checkpoint: Path
    _is_named: bool = False

    def name_streams(self, is_named: bool) -> None:
        """A setting of the session, which a query takes with it when it is analysed and started."""
        self._is_named = is_named
        self.spark.conf.set(_NAMED_STREAMS, "true" if is_named else "false")

    def stream(self, source: Source, parser: Parser, sink: Sink) -> DataFrame:
        options = source_options(self.pipeline, source) | {
            "kafka.group.id": self.pipeline.query_name(sink),
            "stopFile": str(self.stop_file),
            "checkpointLocation": str(self.checkpoint / sink.name),
        }
        reader = self.spark.readStream.format(FORMAT).options(**options).schema(parser.record_schema())
        return (reader.name(source.name) if self._is_named else reader).load()

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


def kafka_options(pipeline: Pipeline, *, is_sink: bool = False) -> dict[str, str]:
    """The settings of the clients for one side: without those that only the other side knows."""
    known, of_others = (_OF_SINKS, _OF_SOURCES) if is_sink else (_OF_SOURCES, _OF_SINKS)
    others = of_others - known
    settings = {f"kafka.{name}": value for name, value in pipeline.kafka.items() if name not in others}
    return {**settings, "kafka.bootstrap.servers": pipeline.bootstrap}


class EmptyStreams:
    """Streams and tables of the right columns without a row, for Spark to analyse; `close` removes their directory."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._directory = tempfile.mkdtemp(prefix="barnabas-check-")
        spark.conf.set(_NAMED_STREAMS, "false")

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def name_streams(self, is_named: bool) -> None:
        """What is never started has no offsets to be bound to."""

    def stream(self, source: Source, parser: Parser, sink: Sink) -> DataFrame:
        return self._spark.readStream.schema(parser.record_schema()).format("parquet").load(self._directory)

    def table(self, source: Source, parser: Parser) -> DataFrame:
        return self._spark.createDataFrame([], SCHEMA_DDL)
