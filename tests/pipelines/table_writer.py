"""A process that writes batches into a Parquet directory as a query of Spark would, until it is killed or done.

`python -m tests.pipelines.table_writer DIRECTORY BATCHES [WRITER]`. A batch is logged after it is committed, so the
last one may be tried again, as Spark does. Batch n has the numbers from n * ROWS on, in two groups; every third joins
small files. Several writers share a directory: each is a query of its own, with numbers of its own.
"""

import sys
from pathlib import Path

import pyarrow as pa

from barnabas.pipelines.file_tasks import ParquetTask
from barnabas.pipelines.files import ParquetDirectory, WrittenFile

ROWS = 40
COMPACT_EVERY = 3
QUERY = "0d5b6f7a-0000-4000-8000-000000000001"
WRITER_NUMBERS = 1_000_000


def rows_of(batch_id: int, writer: int = 0) -> pa.RecordBatch:
    start = writer * WRITER_NUMBERS + batch_id * ROWS
    numbers = list(range(start, start + ROWS))
    return pa.RecordBatch.from_pydict(
        {"number": numbers, "half": ["a" if n % ROWS < ROWS // 2 else "b" for n in numbers]}
    )


def write_batch(table: ParquetDirectory, batch_id: int, writer: int = 0) -> None:
    query = f"{QUERY[:-1]}{writer + 1}"
    if table.is_committed(query, batch_id):
        return
    staged = table.stage(query, batch_id)
    files = []
    for told in ParquetTask(str(staged), batch_id, ("half",))(iter([rows_of(batch_id, writer)])):
        files += [WrittenFile(**row) for row in told.to_pylist()]
    table.commit(query, batch_id, staged, files)


def main(directory: Path, batches: int, writer: int = 0) -> None:
    log = directory / f"log{writer or ''}"
    done = int(log.read_text()) if log.exists() else -1
    table = ParquetDirectory(directory / "table")
    table.recover()
    for batch_id in range(done + 1, batches):
        write_batch(table, batch_id, writer)
        if batch_id % COMPACT_EVERY == COMPACT_EVERY - 1:
            table.compact(files_min=2, bytes_below=1 << 20)
        temporary = log.with_suffix(".new")
        temporary.write_text(str(batch_id))
        temporary.rename(log)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
