"""DuckDB, pyarrow and Spark read a Parquet directory while batches are written and files joined all the time.

Plain readers list names and open them later. When a compaction comes in between they are told that a file is gone, and
the next try works; what they read is whole files, and no row twice. A snapshot gives whole batches, and never fails.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.files import ParquetDirectory
from tests.pipelines.table_writer import COMPACT_EVERY, ROWS, write_batch
from tests.pipelines.test_files import numbers, read_by_arrow, read_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")

SPARK_READS = 4


class Writer:
    """Batches without a pause; nothing is joined while somebody holds `joining`."""

    def __init__(self, table: Path) -> None:
        self.joining = threading.Lock()
        self.batches = 0
        self._table = ParquetDirectory(table)
        self._table.recover()
        self.write()

    def write(self) -> None:
        write_batch(self._table, self.batches)
        self.batches += 1
        if self.batches % COMPACT_EVERY == 0:
            with self.joining:
                self._table.compact(files_min=2, bytes_below=1 << 20)


@dataclass
class Reader:
    """Reads, a second time when a file was gone, and counts."""

    read: Callable[[], list[int]]
    is_gone: Callable[[Exception], bool]
    rows_multiple: int
    reads: int = 0
    retries: int = 0

    def look(self, joining: threading.Lock) -> None:
        try:
            seen = self.read()
        except Exception as error:
            if not self.is_gone(error):
                raise
            self.retries += 1
            with joining:
                seen = self.read()
        self.reads += 1
        assert len(seen) == len(set(seen))
        assert len(seen) % self.rows_multiple == 0


def make_readers(table: Path) -> dict[str, Reader]:
    def read_snapshot() -> list[int]:
        with ParquetDirectory(table).snapshot() as place:
            seen = read_by_arrow(place)
        assert seen == numbers(len(seen) // ROWS)
        return seen

    return {
        "duckdb": Reader(lambda: read_by_duckdb(table), lambda error: isinstance(error, duckdb.IOException), ROWS // 2),
        "pyarrow": Reader(lambda: read_by_arrow(table), lambda error: isinstance(error, FileNotFoundError), ROWS // 2),
        "snapshot": Reader(read_snapshot, lambda error: False, ROWS),
    }


def spark_reader(spark: "SparkSession", table: Path) -> Reader:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    def read() -> list[int]:
        return [row.number for row in spark.read.parquet(str(table)).select("number").collect()]

    def is_gone(error: Exception) -> bool:
        return isinstance(error, PySparkException | Py4JError) and "does not exist" in str(error)

    return Reader(read, is_gone, ROWS // 2)


def test_readers_during_writes_and_compactions_see_no_half_and_no_double(spark: "SparkSession", tmp_path: Path) -> None:
    table = tmp_path / "table"
    writer = Writer(table)
    stop = threading.Event()
    problems: list[Exception] = []

    def repeat(work: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                work()
        except Exception as error:  # noqa: BLE001 - the thread of the test raises it
            problems.append(error)

    readers = make_readers(table)
    works: list[Callable[[], None]] = [writer.write]
    works += [partial(reader.look, writer.joining) for reader in readers.values()]
    by_spark = readers["spark"] = spark_reader(spark, table)
    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        while by_spark.reads < SPARK_READS:
            by_spark.look(writer.joining)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not problems
    assert all(reader.reads > 0 for reader in readers.values())
    assert readers["snapshot"].retries == 0
    assert writer.batches > COMPACT_EVERY
    assert read_by_duckdb(table) == numbers(writer.batches)
    for name, reader in readers.items():
        print(f"{name}: {reader.reads} reads, {reader.retries} of them tried twice, in {writer.batches} batches")
