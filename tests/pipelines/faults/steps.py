"""Steps that the pipelines of these tests name."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from tests.pipelines.steps import Totals


class ShopTotals(Totals):
    """What each shop has sold so far."""

    key_column = "shop"


class TaskFailed(Exception):  # noqa: N818 - named as the fact that it is
    """A first attempt, which is to fail."""


def failing_first(rows: DataFrame) -> DataFrame:
    """The same rows, by tasks whose first attempt fails when its rows have passed."""

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        row_count = 0
        for batch in batches:
            row_count += len(batch)
            yield batch
        context = TaskContext.get()
        assert context is not None, "it runs in a task"
        if row_count and context.attemptNumber() == 0:
            raise TaskFailed(f"the first attempt fails, after {row_count} rows")

    return rows.mapInArrow(passed, rows.schema)
