"""Where `barnabas consume` begins, as people say it. Pure.

```
beginning, end                 of each partition
42                             an offset; -10 means the last ten
2 hours ago, 30s ago           a time before now
2026-11-15, 2026-11-15T10:30   a time, here and now's time zone unless it says another: 2026-11-15T10:30Z
@1700000000000                 a time in milliseconds since 1970
```
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Offset, TopicPartition

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s+ago")
_UNITS_MS: Final = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}


class InvalidStart(BarnabasError):  # noqa: N818 - a fact about the text
    """Text that names no place to begin."""


class StartKind(Enum):
    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class StartPoint:
    kind: StartKind
    number: int = 0
    """The offset (negative: counted back from the end), or milliseconds since 1970."""


def beyond_end(
    topic: str,
    point: StartPoint,
    starts: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, Offset],
) -> str | None:
    """What to say when a place was named that some partitions, or all, do not reach. Empty ones are no surprise."""
    if point.kind is StartKind.TIME and starts == ends and any(ends.values()):
        return f"topic '{topic}' has no record at or after that time"
    if point.kind is not StartKind.OFFSET or point.number <= 0:
        return None
    if all(end <= point.number for end in ends.values()):
        return f"topic '{topic}' has no record at offset {point.number} or beyond; it ends at {max(ends.values())}"
    short = [f"{partition} ({end})" for partition, end in ends.items() if 0 < end < point.number]
    return f"offset {point.number} is beyond the end of {', '.join(short)}" if short else None


def parse_start(text: str, now_ms: int) -> StartPoint:
    said = text.strip().lower()
    if said in (StartKind.BEGINNING.value, "start", "earliest"):
        return StartPoint(StartKind.BEGINNING)
    if said in (StartKind.END.value, "latest"):
        return StartPoint(StartKind.END)
    if re.fullmatch(r"-?\d{1,18}", said):
        return StartPoint(StartKind.OFFSET, int(said))
    if re.fullmatch(r"@\d{1,18}", said):
        return StartPoint(StartKind.TIME, int(said[1:]))
    ago = _AGO.fullmatch(said)
    if ago is not None:
        unit = ago[2] if ago[2] in _UNITS_MS else ago[2].removesuffix("s")
        if unit in _UNITS_MS:
            return StartPoint(StartKind.TIME, max(0, now_ms - int(float(ago[1]) * _UNITS_MS[unit])))
    try:
        moment = datetime.fromisoformat(text.strip())
        return StartPoint(StartKind.TIME, max(0, round(moment.timestamp() * 1000)))
    except (ValueError, OverflowError, OSError):
        raise InvalidStart(
            f"--from {text!r} is not a place to start; use beginning, end, an offset, '2 hours ago' or 2026-11-15T10:30"
        ) from None
