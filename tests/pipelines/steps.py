"""Python and stateful steps that the tests' pipelines name."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


def shout(rows: DataFrame) -> DataFrame:
    return rows.select(sql.upper("value").alias("value"))


class Totals(StatefulProcessor):
    """The sum of `amount` so far, by key."""

    key_column = "name"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        total = self._total.get()[0] if self._total.exists() else 0
        total += sum(int(part["amount"].sum()) for part in rows)
        self._total.update((total,))
        yield pd.DataFrame({self.key_column: [key[0]], "total": [total]})

    def close(self) -> None:
        """Nothing to end."""


def few_rows(lines: DataFrame) -> DataFrame:
    """Fails in a task that gets more than ten rows."""

    def few(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if len(batch) > 10:
                raise ValueError("more than 10 rows")
            yield batch

    return lines.mapInArrow(few, lines.schema)


def first_of(rows: DataFrame, _: DataFrame) -> DataFrame:
    """Makes no use of its second input."""
    return rows
