"""A reader is shown everything from its position on, in order, once: no record is skipped and none comes again.

Each run begins where the one before it ended, or where the reader chose to go on. A reader whose position is not in the
log any more goes to the start of the log, and only these may have put it there:

| the reader goes | because | allowed |
|---|---|---|
| ahead | the log starts later now | where retention or DeleteRecords may move the start, and not beyond it |
| back, to the start | the log ends before its position | after a loss of power |

Within a run the offsets ascend, without gaps but in compacted topics, and stay below the high watermark.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

from barnabas.base.ids import Offset, TopicPartition
from barnabas.sim.checkers.guarantees import (
    damaged_partitions,
    deleted_topics,
    is_compacted,
    may_expire,
    trimmed_topics,
)
from barnabas.sim.checkers.power_loss import PowerLosses
from barnabas.sim.histories.events import History, Positioned, Shown

_AHEAD_SECONDS: Final = 5.0
"""A consumer asks for the next run before it hands out the last one, but not longer before."""


@dataclass(frozen=True, slots=True)
class _Position:
    offset: Offset
    known_at: float
    """Since when the log may have ended before this offset."""
    noted_at: float


def check_positions(history: History) -> Iterator[str]:
    damaged, deleted = damaged_partitions(history), deleted_topics(history)
    rules = _Rules(history)
    positions: dict[tuple[str, TopicPartition], _Position] = {}
    for event in history.events:
        if not isinstance(event, Positioned | Shown) or event.partition in damaged or event.partition.topic in deleted:
            continue
        place = (event.client, event.partition)
        if isinstance(event, Positioned):
            positions[place] = _Position(event.offset, -inf, event.at)
            continue
        yield from rules.problems_within(event)
        last = positions.get(place)
        if last is None:
            yield f"{_run(event)}, but had no position there"
        elif problem := rules.problem_between(last, event):
            yield f"{_run(event)}, but its position was {last.offset}: {problem}"
        known_at = event.at if last is None else last.noted_at
        positions[place] = _Position(event.next_offset, known_at - _AHEAD_SECONDS, event.at)


class _Rules:
    def __init__(self, history: History) -> None:
        self._settings = history.topic_settings()
        self._trimmed = trimmed_topics(history)
        self._losses = PowerLosses(history)
        self._final = history.final

    def problem_between(self, position: _Position, run: Shown) -> str | None:
        first, topic = run.first_offset, run.partition.topic
        if first == position.offset:
            return None
        has_moving_start = may_expire(self._settings.get(topic, {})) or topic in self._trimmed
        if first > position.offset:
            if not has_moving_start:
                return "records are skipped, and nothing moves the start of this log"
            log = self._final.get(run.partition)
            if log is not None and first > log.start_offset and not self._losses.happened(run.partition, run.at, inf):
                return f"records are skipped, and the log still starts at {log.start_offset} in the end"
            return None
        if not self._losses.happened(run.partition, position.known_at, run.at):
            return "records come again, and nothing was lost"
        if first > 0 and not has_moving_start:
            return "it went back, but not to the start of the log"
        return None

    def problems_within(self, run: Shown) -> Iterator[str]:
        expected, has_gaps = run.first_offset, is_compacted(self._settings.get(run.partition.topic, {}))
        for record in run.records:
            if record.offset < expected:
                yield f"{_run(run)}, with offset {record.offset} where {expected} or a later one comes next"
            elif record.offset > expected and not has_gaps:
                yield f"{_run(run)}, with offset {record.offset} where {expected} comes next"
            expected = record.offset + 1
        if run.next_offset < expected or (run.next_offset > expected and not has_gaps):
            yield f"{_run(run)}, whose records end at {expected}"
        if run.next_offset > run.high_watermark:
            yield f"{_run(run)}, beyond the high watermark {run.high_watermark}"


def _run(run: Shown) -> str:
    return f"{run.client} was shown {run.first_offset} to {run.next_offset} of {run.partition} at {run.at:.3f} s"
