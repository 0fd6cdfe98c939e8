"""Iceberg tables, written without jars: files by Spark's tasks, commits by `pyiceberg` (see `lakehouse`).

The number of a batch is a property of the table, set by the commit that adds its files: it outlives snapshots. Files
are written by pyiceberg's own writer, in the tasks: with the ids of columns, statistics, and one for each partition of
a partitioned table. Columns that are new, or wider than the table's, change the table as Iceberg allows.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from barnabas.pipelines.lakehouse import COMPACT_EVERY, UnfitColumn, WriteBatch, query_id_of, require
from barnabas.pipelines.spec import Sink

_BATCH_PROPERTY: Final = "barnabas.batch."
_FILE_BYTES: Final = 128 << 20
_JOINED_BYTES: Final = 64 << 20
_FILES_DDL: Final = "file binary"
_FILES: Final = pa.schema([("file", pa.binary())])


def iceberg_writer(sink: Sink) -> WriteBatch:
    """What writes a batch to the sink's table, and makes that where there is none."""
    require("pyiceberg", "an iceberg sink")

    def write(rows: DataFrame, batch_id: int) -> None:
        schema = to_arrow_schema(rows.schema, timezone="UTC")
        _write(sink, rows, _table(sink, schema), batch_id)
        if batch_id % COMPACT_EVERY == COMPACT_EVERY - 1:
            compact(_table(sink, schema), sink.compact_files, sink.compact_bytes_below)

    return write


def iceberg_batch(sink: Sink, query_id: str) -> int:
    """The last batch of a query in the table, -1 without one."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table = _catalog(sink).load_table(sink.target)
    except NoSuchTableError:
        return -1
    return int(table.properties.get(_BATCH_PROPERTY + query_id, -1))


def check_iceberg(sink: Sink, schema: StructType) -> None:
    """UnfitColumn when the rows cannot be written to the table that is there."""
    from pyiceberg.exceptions import NoSuchTableError, ValidationError

    try:
        table = _catalog(sink).load_table(sink.target)
    except NoSuchTableError:
        return
    update = table.update_schema()
    try:
        update.union_by_name(to_arrow_schema(schema, timezone="UTC"))
    except (ValidationError, ValueError, TypeError) as error:
        raise UnfitColumn(f"the Iceberg table cannot take these columns: {error}") from error


def _catalog(sink: Sink) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("barnabas", **dict(sink.catalog))


def _table(sink: Sink, schema: pa.Schema) -> Any:
    from pyiceberg.exceptions import NoSuchTableError

    catalog = _catalog(sink)
    try:
        return catalog.load_table(sink.target)
    except NoSuchTableError:
        catalog.create_namespace_if_not_exists(sink.target.rpartition(".")[0])
        return catalog.create_table(sink.target, schema)


def _write(sink: Sink, rows: DataFrame, table: Any, batch_id: int) -> None:
    from pyiceberg.expressions import AlwaysTrue

    query_id = query_id_of(rows)
    if int(table.properties.get(_BATCH_PROPERTY + query_id, -1)) >= batch_id:
        return
    with table.update_schema() as update:
        update.union_by_name(to_arrow_schema(rows.schema, timezone="UTC"))
    task = IcebergTask(table.metadata.model_dump_json(), dict(table.io.properties), table.location())
    files = [pickle.loads(row["file"]) for row in rows.mapInArrow(task, _FILES_DDL).collect()]
    with table.transaction() as transaction:
        if sink.mode == "complete" and table.current_snapshot() is not None:
            transaction.delete(AlwaysTrue())
        if files:
            with transaction.update_snapshot().fast_append() as snapshot:
                for file in files:
                    snapshot.append_data_file(file)
        transaction.set_properties({_BATCH_PROPERTY + query_id: str(batch_id)})


@dataclass(frozen=True, slots=True)
class IcebergTask:
    """For `DataFrame.mapInArrow`; gives one row for each file, which is the file's entry for the table, pickled."""

    metadata: str
    properties: dict[str, Any]
    location: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyiceberg.io import load_file_io
        from pyiceberg.table.metadata import TableMetadataUtil

        metadata = TableMetadataUtil.parse_raw(self.metadata)
        files = load_file_io(self.properties, self.location)
        for part in _parts(batches):
            entries = [pickle.dumps(file) for file in _data_files(metadata, part, files)]
            yield pa.RecordBatch.from_arrays([pa.array(entries, pa.binary())], schema=_FILES)


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables of bounded size."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        if len(batch):
            gathered.append(batch)
        if sum(one.nbytes for one in gathered) >= _FILE_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered)


def _data_files(metadata: Any, rows: pa.Table, files: Any) -> Iterator[Any]:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    yield from _dataframe_to_data_files(metadata, rows, files)


def _joinable(small: list[Any]) -> Iterator[list[Any]]:
    """Files to join at once, as many as fit easily into the driver's memory, which holds all their rows."""
    part: list[Any] = []
    for planned in small:
        part.append(planned)
        if sum(one.file.file_size_in_bytes for one in part) >= _JOINED_BYTES:
            yield part
            part = []
    if len(part) > 1:
        yield part


def compact(table: Any, files_min: int, bytes_below: int) -> int:
    """Joins small files of each partition, where there are `files_min` of them; returns how many became fewer.

    The driver does it, some files at a time: each time is a commit of its own, and none changes what readers see.
    """
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    groups: dict[object, list[Any]] = {}
    for planned in table.scan().plan_files():
        if planned.file.file_size_in_bytes < bytes_below and not planned.delete_files:
            groups.setdefault((planned.file.spec_id, repr(planned.file.partition)), []).append(planned)
    fewer = 0
    parts = [part for small in groups.values() if len(small) >= max(files_min, 2) for part in _joinable(small)]
    for small in parts:
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        joined = list(_data_files(table.metadata, scan.to_table(small), table.io))
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
            for planned in small:
                snapshot.delete_data_file(planned.file)
            for file in joined:
                snapshot.append_data_file(file)
        fewer += len(small) - len(joined)
    return fewer
