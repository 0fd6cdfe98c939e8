"""Delta tables, written without jars: files by Spark's tasks, commits by `deltalake` (see `lakehouse`).

The number of a batch is a transaction of the query in Delta's log. Columns that are new are added to the table before
the batch; numbers that are narrower than the table's are widened. `deltalake` cannot widen a column of the table.
"""

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from barnabas.base.clock import SystemClock
from barnabas.pipelines.file_tasks import NO_VALUE, RESULT_DDL, ParquetTask
from barnabas.pipelines.files import WrittenFile
from barnabas.pipelines.lakehouse import COMPACT_EVERY, UnfitColumn, WriteBatch, query_id_of, require
from barnabas.pipelines.spec import Sink

_COMPACTED_BYTES: Final = 256 << 20
_WIDENING: Final = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}
_NUMBERS: Final = ("byte", "short", "integer", "long"), ("float", "double")


def delta_writer(sink: Sink, directory: Path) -> WriteBatch:
    """What writes a batch to the table in the sink's directory, and makes that where there is none."""
    require("deltalake", "a delta sink")
    table = _DeltaTable(sink, directory / sink.target)

    def write(rows: DataFrame, batch_id: int) -> None:
        table.write(rows, batch_id)
        if batch_id % COMPACT_EVERY == COMPACT_EVERY - 1:
            table.compact()

    return write


def delta_batch(sink: Sink, directory: Path, query_id: str) -> int:
    """The last batch of a query in the table, -1 without one."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        done = DeltaTable(str(directory / sink.target)).transaction_version(query_id)
    except TableNotFoundError:
        return -1
    return -1 if done is None else int(done)


def check_delta(sink: Sink, directory: Path, schema: StructType) -> None:
    """UnfitColumn when the rows cannot be written to the table that is there."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        table = DeltaTable(str(directory / sink.target))
    except TableNotFoundError:
        return
    if sink.mode != "complete":
        _casts(table, to_arrow_schema(schema, timezone="UTC"))


class _DeltaTable:
    def __init__(self, sink: Sink, path: Path) -> None:
        self._sink = sink
        self._path = path
        self._clock = SystemClock()

    def write(self, rows: DataFrame, batch_id: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction

        query_id = query_id_of(rows)
        schema = to_arrow_schema(rows.schema, timezone="UTC")
        partition_by = list(self._sink.partition_by)
        table = DeltaTable.create(str(self._path), schema, mode="ignore", partition_by=partition_by or None)
        done = table.transaction_version(query_id)
        if done is not None and done >= batch_id:
            return
        is_complete = self._sink.mode == "complete"
        casts = () if is_complete else _casts(table, schema)
        task = ParquetTask(str(self._path), batch_id, self._sink.partition_by, casts)
        ordered = rows.sortWithinPartitions(*partition_by) if partition_by else rows
        files = [WrittenFile(*row) for row in ordered.mapInArrow(task, RESULT_DDL).collect()]
        if not files and not is_complete:
            return
        if not is_complete:
            _add_columns(table, schema)
        table.create_write_transaction(
            [self._added(file, rows.schema) for file in files],
            "overwrite" if is_complete else "append",
            schema if is_complete else table.schema(),
            partition_by or None,
            commit_properties=CommitProperties(app_transactions=[Transaction(query_id, batch_id)]),
        )

    def _added(self, file: WrittenFile, schema: StructType) -> Any:
        from deltalake.transaction import AddAction

        values: dict[str, str | None] = {}
        for name, part in zip(self._sink.partition_by, file.path.split("/"), strict=False):
            text = unquote(part.partition("=")[2])
            values[name] = None if text == NO_VALUE else _partition_text(text, schema[name].dataType.simpleString())
        now_ms = self._clock.now_ms()
        return AddAction(quote(file.path), file.size_bytes, values, now_ms, True, json.dumps({"numRecords": file.rows}))

    def compact(self) -> None:
        """Joins small files, once there are many."""
        from deltalake import DeltaTable

        table = DeltaTable(str(self._path))
        sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist()
        if sum(size < self._sink.compact_bytes_below for size in sizes) >= self._sink.compact_files:
            table.optimize.compact(target_size=_COMPACTED_BYTES)


def _partition_text(text: str, kind: str) -> str:
    """A value as Delta's log writes it."""
    if kind == "boolean":
        return text.lower()
    return text.removesuffix("+00:00") if kind == "timestamp" else text


def _casts(table: Any, schema: pa.Schema) -> tuple[tuple[str, pa.DataType], ...]:
    """The columns that must become wider to be those of the table."""
    from deltalake import Schema

    kinds = {field.name: field.type for field in table.schema().fields}
    casts = []
    for field in Schema.from_arrow(schema).fields:
        wanted = kinds.get(field.name, field.type)
        if wanted == field.type:
            continue
        name, wider = getattr(field.type, "type", ""), getattr(wanted, "type", "")
        if not any(name in row and wider in row and row.index(name) < row.index(wider) for row in _NUMBERS):
            raise UnfitColumn(
                f"column '{field.name}' is {name or field.type}, but {wider or wanted} in the Delta table"
            )
        casts.append((field.name, _WIDENING[wider]))
    return tuple(casts)


def _add_columns(table: Any, schema: pa.Schema) -> None:
    from deltalake import Schema

    known = {field.name for field in table.schema().fields}
    new = [field for field in Schema.from_arrow(schema).fields if field.name not in known]
    if new:
        table.alter.add_columns(new)
