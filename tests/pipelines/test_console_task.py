"""What the tasks of a console sink give the driver."""

from collections.abc import Iterable

import pyarrow as pa
import pytest

from barnabas.pipelines.console_task import ConsoleTask


def run_task(rows_max: int, batches: Iterable[pa.RecordBatch]) -> tuple[list[list[str]], int]:
    ((only,),) = [given.to_pylist() for given in ConsoleTask(rows_max)(iter(batches))]
    return only["shown"], only["total"]


def numbers(start: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(range(start, stop)), "none": [None] * (stop - start)})


@pytest.mark.parametrize("rows_max", [1, 3, 5, 7, 20])
def test_first_rows_are_kept_and_all_are_counted(rows_max: int) -> None:
    shown, total = run_task(rows_max, [numbers(0, 5), numbers(5, 5), numbers(5, 12)])
    assert shown == [[str(number), ""] for number in range(min(rows_max, 12))]
    assert total == 12


def test_partition_without_rows_gives_none() -> None:
    assert run_task(20, []) == ([], 0)
