"""Steps that the pipelines of these tests name."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


class ShopTotals(StatefulProcessor):
    """What each shop has sold so far."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        total = self._total.get()[0] if self._total.exists() else 0
        total += sum(int(part["amount"].sum()) for part in rows)
        self._total.update((total,))
        yield pd.DataFrame({"shop": [key[0]], "total": [total]})

    def close(self) -> None:
        """Nothing to end."""


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
