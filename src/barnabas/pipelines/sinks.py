"""Starts the query of a sink: where its rows go, in which mode, and what makes each batch count once.

| sink | written by | a batch that is tried again |
|---|---|---|
| topic | `format("barnabas")`, update mode by `write_stream` | may repeat records |
| parquet | `barnabas.pipelines.files` | is skipped: its manifest is there |
| delta | `barnabas.pipelines.delta` | is skipped: the table keeps the batch's number |
| iceberg | `barnabas.pipelines.iceberg` | is skipped: the table keeps the batch's number |
| console | this process's output | is shown again |
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from barnabas.pipelines.compile import Compiled
from barnabas.pipelines.console_task import SHOWN_DDL, ConsoleTask
from barnabas.pipelines.delta import delta_batch, delta_writer
from barnabas.pipelines.file_tasks import RESULT_DDL, ParquetTask
from barnabas.pipelines.files import ParquetDirectory, WrittenFile
from barnabas.pipelines.iceberg import iceberg_batch, iceberg_writer
from barnabas.pipelines.lakehouse import COMPACT_EVERY, query_id_of
from barnabas.pipelines.spec import Pipeline, Sink
from barnabas.pipelines.streams import kafka_options
from barnabas.spark.source import FORMAT
from barnabas.spark.update_mode import write_stream

ShowRows = Callable[[str, int, list[str], list[list[str]], int], None]
"""(sink, batch, columns, rows, rows in all): how the console shows a batch."""


@dataclass(frozen=True, slots=True)
class Starter:
    """Starts queries. `directory` is the one of the pipeline's file."""

    pipeline: Pipeline
    directory: Path
    checkpoint: Path
    show_rows: ShowRows
    _tables: dict[str, ParquetDirectory] = field(default_factory=dict)
    """Kept from start to start of a query, with the locks of batches that were broken off."""

    def start(self, compiled: Compiled, *, is_once: bool) -> StreamingQuery:
        sink = compiled.sink
        writer = self._writer(sink, compiled.rows)
        writer = writer.queryName(self.pipeline.query_name(sink)).outputMode(sink.mode)
        writer = writer.option("checkpointLocation", str(self.checkpoint / sink.name))
        if is_once:
            writer = writer.trigger(availableNow=True)
        elif sink.trigger_ms is not None:
            writer = writer.trigger(processingTime=f"{sink.trigger_ms} milliseconds")
        return writer.start()

    def is_committed(self, sink: Sink, query_id: str, batch_id: int) -> bool:
        """Whether the sink has a batch for good. One that may repeat records has none."""
        match sink.kind:
            case "parquet":
                table = self._table(sink)
                table.recover()
                return table.is_committed(query_id, batch_id)
            case "delta":
                return delta_batch(sink, self.directory, query_id) >= batch_id
            case "iceberg":
                return iceberg_batch(sink, query_id) >= batch_id
            case _:
                return False

    def _table(self, sink: Sink) -> ParquetDirectory:
        return self._tables.setdefault(sink.name, ParquetDirectory(self.directory / sink.target))

    def _writer(self, sink: Sink, rows: DataFrame) -> DataStreamWriter:
        match sink.kind:
            case "topic":
                options = kafka_options(self.pipeline, is_sink=True) | {"topic": sink.target}
                if sink.mode == "update":
                    return write_stream(rows, options)
                return rows.writeStream.format(FORMAT).options(**options)
            case "parquet":
                return rows.writeStream.foreachBatch(self._parquet(sink))
            case "console":
                return rows.writeStream.foreachBatch(self._console(sink))
            case "delta":
                return rows.writeStream.foreachBatch(delta_writer(sink, self.directory))
            case _:
                return rows.writeStream.foreachBatch(iceberg_writer(sink))

    def _parquet(self, sink: Sink) -> Callable[[DataFrame, int], None]:
        table = self._table(sink)
        table.recover()

        def write(rows: DataFrame, batch_id: int) -> None:
            query_id = query_id_of(rows)
            if table.is_committed(query_id, batch_id):
                return
            staged = table.stage(query_id, batch_id)
            ordered = rows.sortWithinPartitions(*sink.partition_by) if sink.partition_by else rows
            task = ParquetTask(str(staged), batch_id, sink.partition_by)
            files = [WrittenFile(*row) for row in ordered.mapInArrow(task, RESULT_DDL).collect()]
            table.commit(query_id, batch_id, staged, files)
            if batch_id % COMPACT_EVERY == COMPACT_EVERY - 1:
                table.compact(sink.compact_files, sink.compact_bytes_below)

        return write

    def _console(self, sink: Sink) -> Callable[[DataFrame, int], None]:
        def write(rows: DataFrame, batch_id: int) -> None:
            parts = rows.mapInArrow(ConsoleTask(sink.rows), SHOWN_DDL).collect()
            shown = [row for part in parts for row in part["shown"]][: sink.rows]
            self.show_rows(sink.name, batch_id, rows.columns, shown, sum(part["total"] for part in parts))

        return write
