"""Which partitions of a group to move, and where to, as people say it. Pure.

```
orders, orders:0,2                   --topic: a topic, or some of its partitions
orders:0=42                          an offset to commit
PT1H30M, P1D, P1DT2H, PT0.5S         --by-duration: ISO 8601, days to seconds
orders,0,42                          a line of --from-file; Kafka's form with the group before it is read, too
```
"""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.base.ids import Offset, TopicPartition
from barnabas.cli.remote import CommandFailed

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_POSITION: Final = re.compile(r"(?P<topic>[^:=]+):(?P<partition>\d{1,9})=(?P<offset>\d{1,18})")


class TargetKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"
    CURRENT = "current"


@dataclass(frozen=True, slots=True)
class Target:
    kind: TargetKind
    number: int = 0
    """The offset, the milliseconds since 1970, or by how much to shift."""


@dataclass(frozen=True, slots=True)
class TopicScope:
    topic: str
    partitions: tuple[int, ...] | None
    """None: all of them."""


def parse_scope(text: str) -> TopicScope:
    topic, colon, indexes = text.partition(":")
    if not topic or (colon and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", indexes)):
        raise CommandFailed(f"--topic wants TOPIC or TOPIC:PARTITION,PARTITION, not {text!r}")
    chosen = tuple(dict.fromkeys(int(index) for index in indexes.split(","))) if colon else None
    return TopicScope(topic, chosen)


def parse_position(text: str) -> tuple[TopicPartition, Offset]:
    found = _POSITION.fullmatch(text)
    if found is None:
        raise CommandFailed(f"{text!r} is not TOPIC:PARTITION=OFFSET, as in orders:0=42")
    return TopicPartition(found["topic"], int(found["partition"])), int(found["offset"])


def parse_duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        raise CommandFailed(f"--by-duration wants an ISO 8601 duration such as PT1H30M or P1D, not {text!r}")
    days, hours, minutes = (int(found[unit] or 0) for unit in ("days", "hours", "minutes"))
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + round(float(found["seconds"] or 0) * 1000)


def parse_offsets_file(group: str, lines: Iterable[str], name: str) -> dict[TopicPartition, Offset]:
    """TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET in each line; lines of other groups are left out."""
    offsets: dict[TopicPartition, Offset] = {}
    for number, row in enumerate(csv.reader(lines), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or cells[0].startswith("#"):
            continue
        if len(cells) == 4:
            if cells[0].strip('"') != group:
                continue
            cells = cells[1:]
        if len(cells) != 3 or not all(re.fullmatch(r"\d{1,18}", cell) for cell in cells[1:]):
            raise CommandFailed(f"{name}, line {number}: {','.join(row)!r} is not TOPIC,PARTITION,OFFSET")
        offsets[TopicPartition(cells[0], int(cells[1]))] = int(cells[2])
    if not offsets:
        raise CommandFailed(f"{name} has no offset for group '{group}'")
    return offsets
