"""Drops a batch that cannot be finished, when the file asks for smaller ones.

Spark logs the offsets of a batch before it runs, and after a failure runs the same batch again: one that is too large
for memory is too large at every start, and a lower `records_max_per_batch` would apply from the next batch on. So when
that limit has changed, the logged plan of an unfinished batch is dropped, and the batch is planned again. Never if the
sink has committed it: a table counts each number once, and would skip the new batch of that number.

```
CHECKPOINT/SINK/metadata    {"id": …}, the query's id
CHECKPOINT/SINK/offsets/N   written before batch N
CHECKPOINT/SINK/commits/N   written after it
```
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

IsCommitted = Callable[[str, int], bool]
"""(query id, batch) -> whether the sink has all of it."""


def drop_unfinished_batch(place: Path, is_committed: IsCommitted) -> int | None:
    """The number of the batch whose plan was dropped from the checkpoint of a query; None where there was none."""
    planned, finished = _last(place / "offsets"), _last(place / "commits")
    if planned <= finished:
        return None
    try:
        query_id = str(json.loads((place / "metadata").read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if is_committed(query_id, planned):
        return None
    for name in (f".{planned}.crc", str(planned)):
        (place / "offsets" / name).unlink(missing_ok=True)
    return planned


def _last(directory: Path) -> int:
    numbers = [int(name) for name in os.listdir(directory) if name.isdecimal()] if directory.is_dir() else []
    return max(numbers, default=-1)
