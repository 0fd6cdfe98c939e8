"""The part of a Parquet sink that runs in Spark's tasks: rows to files in staging.

Rows come sorted by the columns of `partition_by`, so one file is open at a time. A task that is tried again writes
other names; only the files that a successful one tells are committed (`barnabas.pipelines.files`).
"""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

RESULT_DDL: Final = "path string, rows bigint, size_bytes bigint"
_RESULT: Final = pa.schema([("path", pa.string()), ("rows", pa.int64()), ("size_bytes", pa.int64())])
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_FILE_BYTES_MAX: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class ParquetTask:
    """For `DataFrame.mapInArrow`; gives one row for each file."""

    staged: str
    batch_id: int
    partition_by: tuple[str, ...]
    casts: tuple[tuple[str, pa.DataType], ...] = ()
    """Columns that are written as another type than they come."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written: list[dict[str, Any]] = []
        current: _OpenFile | None = None
        for batch in batches:
            for directory, rows in self._parts(self._cast(batch)):
                if current is not None and (current.directory != directory or current.size_bytes > _FILE_BYTES_MAX):
                    written.append(current.close())
                    current = None
                if current is None:
                    current = _OpenFile(Path(self.staged), directory, self.batch_id, rows.schema)
                current.write(rows)
        if current is not None:
            written.append(current.close())
        yield pa.RecordBatch.from_pylist(written, _RESULT)

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, kind in self.casts:
            index = batch.schema.get_field_index(name)
            batch = batch.set_column(index, batch.schema.field(name).with_type(kind), batch.column(name).cast(kind))
        return batch

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of a batch by the directory they belong to, without the columns that make its name."""
        if not len(batch):
            return
        if not self.partition_by:
            yield "", batch
            return
        keys = pa.Table.from_batches([batch]).select(list(self.partition_by))
        rest = batch.drop_columns(list(self.partition_by))
        for combination in keys.group_by(list(self.partition_by), use_threads=False).aggregate([]).to_pylist():
            mask = None
            for name in self.partition_by:
                value = combination[name]
                column = batch.column(name)
                one = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
                mask = one if mask is None else pc.and_kleene(mask, one)
            yield directory_name(combination, self.partition_by), rest.filter(mask)


def directory_name(values: dict[str, Any], names: tuple[str, ...]) -> str:
    """As Hive writes it: `day=2024-05-01/host=a`."""
    return "/".join(f"{quote(name, safe='')}={_value_text(values[name])}" for name in names)


def _value_text(value: object) -> str:
    return NO_VALUE if value is None or value == "" else quote(str(value), safe=" -_.:+")


class _OpenFile:
    def __init__(self, staged: Path, directory: str, batch_id: int, schema: pa.Schema) -> None:
        self.directory = directory
        self._path = Path(directory) / f"part-{batch_id:012d}-{uuid.uuid4().hex}.parquet"
        self._place = staged / self._path
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._output: BinaryIO = open(self._place, "wb")  # noqa: SIM115 - `close` ends it
        self._writer = pq.ParquetWriter(self._output, schema, compression="zstd")
        self._rows = 0

    @property
    def size_bytes(self) -> int:
        return self._output.tell()

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)
        self._rows += len(rows)

    def close(self) -> dict[str, Any]:
        self._writer.close()
        self._output.flush()
        os.fsync(self._output.fileno())
        size_bytes = self._output.tell()
        self._output.close()
        return {"path": str(self._path), "rows": self._rows, "size_bytes": size_bytes}
