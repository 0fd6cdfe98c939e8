"""The Parquet directory: whole at every moment, each batch once, whatever is killed when."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from barnabas.pipelines import files
from barnabas.pipelines.file_tasks import ParquetTask, directory_name
from barnabas.pipelines.files import ParquetDirectory, TableDirectoryBroken, WrittenFile, join_files
from tests.pipelines.table_writer import QUERY, ROWS, WRITER_NUMBERS, rows_of, write_batch

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")


@pytest.fixture
def table(tmp_path: Path) -> ParquetDirectory:
    directory = ParquetDirectory(tmp_path / "table")
    directory.recover()
    return directory


def read_by_arrow(path: Path) -> list[int]:
    return sorted(ds.dataset(path, partitioning="hive").to_table(columns=["number"])["number"].to_pylist())


def read_by_duckdb(path: Path) -> list[int]:
    with duckdb.connect() as connection:
        rows = connection.sql(f"SELECT number FROM read_parquet('{path}/**/*.parquet', hive_partitioning = true)")
        return sorted(number for (number,) in rows.fetchall())


def numbers(batches: int) -> list[int]:
    return list(range(batches * ROWS))


def test_batches_are_read_by_arrow_and_duckdb(table: ParquetDirectory) -> None:
    for batch_id in range(3):
        write_batch(table, batch_id)
    assert read_by_arrow(table.path) == read_by_duckdb(table.path) == numbers(3)
    assert sorted(os.listdir(table.path)) == ["half=a", "half=b"]


def test_batch_that_is_committed_is_not_written_again(table: ParquetDirectory) -> None:
    write_batch(table, 0)
    files = sorted(table.path.rglob("*.parquet"))
    write_batch(table, 0)
    assert sorted(table.path.rglob("*.parquet")) == files
    assert not table.is_committed(QUERY, 1)
    assert not table.is_committed("another-query", 0)


def test_crash_before_manifest_leaves_nothing_to_readers(table: ParquetDirectory) -> None:
    write_batch(table, 0)
    staged = table.stage(QUERY, 1)
    list(ParquetTask(str(staged), 1, ("half",))(iter([rows_of(1)])))
    again = ParquetDirectory(table.path)
    again.recover()
    assert staged.exists(), "its writer lives"
    table._forget_staged(QUERY)  # as the end of its process does
    again.recover()
    assert read_by_arrow(table.path) == numbers(1)
    assert not staged.exists()
    write_batch(again, 1)
    assert read_by_arrow(table.path) == numbers(2)


class KilledError(Exception):
    pass


def die_between_the_files_of_a_batch(table: ParquetDirectory, batch_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is committed, one of its two files is in its place, and its writer is dead."""
    rename = os.rename
    renamed: list[str] = []

    def rename_twice(source: str, target: str) -> None:
        if len(renamed) == 2:  # the manifest, and one of two files
            raise KilledError
        renamed.append(target)
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename_twice)
        with pytest.raises(KilledError):
            write_batch(table, batch_id)
    table._forget_staged(QUERY)  # as the end of its process does


def test_crash_between_manifest_and_renames_is_finished_by_recovery(
    table: ParquetDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_between_the_files_of_a_batch(table, 0, monkeypatch)
    assert len(read_by_arrow(table.path)) == ROWS // 2
    with table.snapshot() as place:
        assert not list(place.rglob("*.parquet"))
    again = ParquetDirectory(table.path)
    again.recover()
    assert again.is_committed(QUERY, 0)
    assert read_by_arrow(table.path) == numbers(1)


def test_compaction_by_another_writer_finishes_the_batch_of_a_dead_one(
    table: ParquetDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_batch(table, 0)
    die_between_the_files_of_a_batch(table, 1, monkeypatch)
    assert ParquetDirectory(table.path).compact(files_min=2, bytes_below=1 << 20)
    assert read_by_arrow(table.path) == numbers(2)
    again = ParquetDirectory(table.path)
    again.recover()
    assert again.is_committed(QUERY, 1)
    assert read_by_arrow(table.path) == numbers(2)


def test_recovery_after_committed_file_was_lost_says_which(table: ParquetDirectory) -> None:
    staged = table.stage(QUERY, 0)
    with pytest.raises(TableDirectoryBroken, match=r"gone\.parquet is listed in batch 0"):
        table.commit(QUERY, 0, staged, [WrittenFile("gone.parquet", 1, 1)])


def test_compaction_joins_small_files_and_keeps_rows(table: ParquetDirectory) -> None:
    for batch_id in range(5):
        write_batch(table, batch_id)
    assert table.compact(files_min=5, bytes_below=1 << 20) == 8
    assert len(list(table.path.rglob("*.parquet"))) == 2
    assert read_by_arrow(table.path) == read_by_duckdb(table.path) == numbers(5)
    write_batch(table, 5)
    table.recover()
    assert read_by_arrow(table.path) == numbers(6)


def test_compaction_leaves_large_files_and_few_small_ones(table: ParquetDirectory) -> None:
    for batch_id in range(3):
        write_batch(table, batch_id)
    assert table.compact(files_min=4, bytes_below=1 << 20) == 0
    assert table.compact(files_min=2, bytes_below=1) == 0
    assert len(list(table.path.rglob("*.parquet"))) == 6


def test_snapshot_stays_whole_through_compaction(table: ParquetDirectory) -> None:
    for batch_id in range(4):
        write_batch(table, batch_id)
    with table.snapshot() as place:
        scan = ds.dataset(place, partitioning="hive")
        table.compact(files_min=2, bytes_below=1 << 20)
        write_batch(table, 4)
        assert sorted(scan.to_table()["number"].to_pylist()) == numbers(4)
    assert not place.exists()


def test_snapshot_of_dead_process_is_removed_and_that_of_a_living_one_stays(table: ParquetDirectory) -> None:
    for batch_id in range(3):
        write_batch(table, batch_id)
    script = (
        "import os, pathlib, sys; from barnabas.pipelines.files import ParquetDirectory;"
        " held = ParquetDirectory(pathlib.Path(sys.argv[1])).snapshot(); held.__enter__(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(table.path)], check=False).returncode == -9
    with table.snapshot() as place:
        assert len(list(place.parent.iterdir())) == 2
        table.compact(files_min=2, bytes_below=1 << 20)
        assert list(place.parent.iterdir()) == [place]


def test_joined_files_are_as_wide_as_the_widest(tmp_path: Path) -> None:
    for name, kind in (("a", pa.int32()), ("b", pa.int64()), ("c", pa.int16())):
        pq.write_table(pa.table({"n": pa.array([1], kind), "x": pa.array([1.5], pa.float32())}), tmp_path / name)
    join_files([tmp_path / name for name in "abc"], tmp_path / "joined")
    joined = pq.read_table(tmp_path / "joined")
    assert joined.schema.field("n").type == pa.int64()
    assert joined["n"].to_pylist() == [1, 1, 1]


def test_files_that_cannot_be_joined_stay_and_hold_up_nothing(table: ParquetDirectory) -> None:
    for batch_id in range(2):
        write_batch(table, batch_id)
    odd = pa.table({"number": pa.array(["text"])})
    pq.write_table(odd, table.path / "half=a" / "part-odd.parquet")
    assert table.compact(files_min=2, bytes_below=1 << 20) == 1  # of half=b alone
    assert len(list((table.path / "half=a").glob("*.parquet"))) == 3


def test_joined_files_with_other_columns_have_nulls(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "one.parquet")
    pq.write_table(pa.table({"a": [2], "c": [1.5]}), tmp_path / "two.parquet")
    join_files([tmp_path / "one.parquet", tmp_path / "two.parquet"], tmp_path / "joined.parquet")
    assert pq.read_table(tmp_path / "joined.parquet").to_pylist() == [
        {"a": 1, "b": "x", "c": None},
        {"a": 2, "b": None, "c": 1.5},
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [("a/b=c", "k=a%2Fb%3Dc"), (None, "k=__HIVE_DEFAULT_PARTITION__"), ("2024-05-01", "k=2024-05-01"), (7, "k=7")],
)
def test_directory_name_of_any_value_is_one_directory(value: object, text: str) -> None:
    assert directory_name({"k": value}, ("k",)) == text


def test_writer_killed_at_any_moment_leaves_each_batch_once(tmp_path: Path) -> None:
    """Readers look all the time; what they see is whole batches' files, and no number twice."""
    random = Random(7)
    batches = 30
    command = [sys.executable, "-m", "tests.pipelines.table_writer", str(tmp_path), str(batches)]
    log = tmp_path / "log"
    kills = looks = 0
    while True:
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        kill_at = (int(log.read_text()) if log.exists() else -1) + random.randint(1, 6)
        while process.poll() is None:
            looks += _look(tmp_path / "table")
            if kills < 5 and log.exists() and int(log.read_text()) >= kill_at:
                process.kill()
                kills += 1
        if process.wait() == 0:
            break
        assert process.returncode == -9
    assert kills == 5
    assert looks > 0
    assert read_by_arrow(tmp_path / "table") == read_by_duckdb(tmp_path / "table") == numbers(batches)


def numbers_of(writers: int, batches: int) -> list[int]:
    return [writer * WRITER_NUMBERS + number for writer in range(writers) for number in numbers(batches)]


def test_threads_that_write_and_compact_one_directory_keep_every_row(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        table = ParquetDirectory(tmp_path / "table")
        table.recover()
        for batch_id in range(8):
            write_batch(table, batch_id, writer)
            table.compact(files_min=2, bytes_below=1 << 20)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert read_by_arrow(tmp_path / "table") == numbers_of(4, 8)


def test_place_of_a_batch_is_locked_before_another_writer_could_take_it_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ParquetDirectory(tmp_path / "table")
    table.recover()
    lock_now = files._lock_now
    recovering = threading.Thread(target=ParquetDirectory(tmp_path / "table").recover)

    def lock_later(place: Path) -> int:
        recovering.start()
        recovering.join(0.5)  # it waits for this writer, or is over
        return lock_now(place)

    monkeypatch.setattr(files, "_lock_now", lock_later)
    staged = table.stage(QUERY, 0)
    recovering.join()
    assert staged.is_dir()


def test_processes_that_write_one_directory_keep_every_row_also_when_one_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def start(writer: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.pipelines.table_writer", str(tmp_path), "16", str(writer)]
        return subprocess.Popen(command, env=environment)

    writers = [start(writer) for writer in range(3)]
    log = tmp_path / "log"
    while not log.exists() and writers[0].poll() is None:
        writers[0].poll()
    writers[0].kill()
    writers[0].wait()
    writers[0] = start(0)
    assert [process.wait() for process in writers] == [0, 0, 0]
    assert read_by_arrow(tmp_path / "table") == numbers_of(3, 16)


def _look(table: Path) -> int:
    """1 when the directory could be read; a name that was listed and then exchanged is a reason to look again."""
    if not table.exists() or not any(table.rglob("*.parquet")):
        return 0
    try:
        seen = read_by_arrow(table)
    except FileNotFoundError:
        return 0
    assert len(seen) == len(set(seen))
    assert len(seen) % (ROWS // 2) == 0
    return 1
