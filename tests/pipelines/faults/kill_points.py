"""The moments of a batch at which a run is killed, seen in the files that Spark and the sinks keep, and in topics.

```
logged ──▶ writing ──▶ written ──▶ done
  │           │           │          └ commits/N is there
  │           │           └ a Parquet sink's manifest of the batch is there
  │           └ a task's directory is there, or the topic has records that were not there when the batch was logged
  └ offsets/N is there
```

Between the event and the death lie milliseconds in which the run goes on, so a kill at `logged` may find the batch
half written. `broken_off` says what it was in the end.
"""

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final

from barnabas.base.ids import TopicPartition
from tests.pipelines.faults.processes import PipelineProcess, Victim

BATCHES_AHEAD_MAX: Final = 3
_BATCH_FILE: Final = re.compile(r"\d+")

EndOf = Callable[[str], int]
"""How many records a topic has."""


class Moment(Enum):
    LOGGED = "logged"
    WRITING = "writing"
    WRITTEN = "written"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class BatchRange:
    """What a batch reads of one partition."""

    batch: int
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class WatchedSink:
    """`target` is a topic, or a Parquet sink's directory."""

    name: str
    checkpoint: Path
    target: str | Path

    def logged(self) -> set[int]:
        return _batches(self.checkpoint / self.name / "offsets")

    def done(self) -> set[int]:
        return _batches(self.checkpoint / self.name / "commits")

    def ends(self) -> dict[TopicPartition, int]:
        """Up to where the last batch that is done has read."""
        done = self.done()
        return self._offsets_of(max(done)) if done else {}

    def ranges(self) -> list[BatchRange]:
        """What each batch has read, or is to read, of a query with one topic; Spark keeps a hundred of them."""
        found: list[BatchRange] = []
        firsts: dict[TopicPartition, int] = {}
        for batch in sorted(self.logged()):
            ends = self._offsets_of(batch)
            found += [BatchRange(batch, one.partition, firsts.get(one, 0), end) for one, end in ends.items()]
            firsts = ends
        return found

    def _offsets_of(self, batch: int) -> dict[TopicPartition, int]:
        """What Spark's log of a batch says of its one stream: the third line, `NAME:{…}`."""
        text = (self.checkpoint / self.name / "offsets" / str(batch)).read_text(encoding="utf-8")
        offsets = text.splitlines()[2]
        return {
            TopicPartition(topic, int(index)): offset
            for topic, ends in json.loads(offsets[offsets.index("{") :]).items()
            for index, offset in ends.items()
        }

    def broken_off(self) -> set[int]:
        """Batches that the next run repeats."""
        return self.logged() - self.done()

    def has_reached(self, moment: Moment, batch: int, end_before: int, end_of: EndOf) -> bool:
        if moment is Moment.DONE or batch in self.done():
            return batch in self.done()
        if batch not in self.logged():
            return False
        if moment is Moment.LOGGED:
            return True
        if isinstance(self.target, str):
            return moment is Moment.WRITING and end_of(self.target) > end_before
        private = self.target.parent / f".{self.target.name}.barnabas"
        place = "staging" if moment is Moment.WRITING else "batches"
        return any(f"-{batch:012d}" in name and not name.startswith(".") for name in _names(private / place))


@dataclass(frozen=True, slots=True)
class Kill:
    """One death of a run, and what it left behind."""

    sink: str
    batch: int
    moment: Moment
    victim: Victim
    broken_off: dict[str, set[int]]


@dataclass(frozen=True, slots=True)
class Killer:
    """Chooses moments by `random`, among the batches that are still to come of `records` that all sinks read."""

    sinks: list[WatchedSink]
    random: Random
    records: int
    records_per_batch: int
    end_of: EndOf

    def kill(self, file: Path, victim: Victim = Victim.ALL) -> Kill:
        """Starts a run, kills it when the moment has come, and tells what was broken off."""
        left = (1 + BATCHES_AHEAD_MAX) * self.records_per_batch
        sinks = [sink for sink in self.sinks if self.records - sum(sink.ends().values()) >= left]
        assert sinks, "there is too little left to read for one more kill"
        sink = self.random.choice(sinks)
        moment = self.random.choice(list(Moment))
        # Batch 0 of a new query is empty, so nothing of it can be seen in a sink.
        batch = max(sink.done() or {0}) + 1 + self.random.randint(0, BATCHES_AHEAD_MAX - 1)
        with PipelineProcess(file) as process:
            reached = self._watch(sink, moment, batch)
            process.wait_until(reached, f"batch {batch} of {sink.name} is {moment.value}")
            process.kill(victim)
        return Kill(sink.name, batch, moment, victim, {one.name: one.broken_off() for one in self.sinks})

    def _watch(self, sink: WatchedSink, moment: Moment, batch: int) -> Callable[[], bool]:
        target, end_before = sink.target, 0

        def has_come() -> bool:
            nonlocal end_before
            if isinstance(target, str) and moment is Moment.WRITING and batch not in sink.logged():
                end_before = self.end_of(target)
            return sink.has_reached(moment, batch, end_before, self.end_of)

        return has_come


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _batches(directory: Path) -> set[int]:
    return {int(name) for name in _names(directory) if _BATCH_FILE.fullmatch(name)}
