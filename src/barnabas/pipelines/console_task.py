"""What a task of a console sink does: counts its rows, and keeps as many as may be shown.

The driver gets those and the count, however large a batch is; and every partition is read to its end, without which a
query with state would not be whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

SHOWN_DDL: Final = "shown array<array<string>>, total bigint"
_SHOWN: Final = pa.schema([("shown", pa.list_(pa.list_(pa.string()))), ("total", pa.int64())])


@dataclass(frozen=True, slots=True)
class ConsoleTask:
    """For `DataFrame.mapInArrow`; gives one row."""

    rows_max: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shown: list[list[str]] = []
        total = 0
        for batch in batches:
            total += len(batch)
            shown += [_texts(row) for row in batch[: self.rows_max - len(shown)].to_pylist()]
        yield pa.RecordBatch.from_pylist([{"shown": shown, "total": total}], _SHOWN)


def _texts(row: dict[str, Any]) -> list[str]:
    return ["" if value is None else str(value) for value in row.values()]
