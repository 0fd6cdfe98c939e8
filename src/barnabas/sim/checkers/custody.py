"""Who has what was committed, in a cluster: when is nobody left that must have it?

A record that is acknowledged by all, or shown to anybody, is with every replica that is in sync at that moment, and
with those that are eligible: nothing was committed since they were in sync. From then on

- a replica loses it when its broker loses power (unless the topic syncs every record), its disk is replaced, or a bit
  of its log changes: then it counts again only when it is in sync in a later registration;
- a replica that is in sync in such a registration has it, because it joined while somebody did;
- a replica that is out of sync keeps what it has.

The promise is kept for as long as one has it. Who is in sync is what the ensemble has committed
(`histories.cluster_watch`), not what brokers believe. The two differ by members that left, which makes no difference,
and by members that were only proposed, which the leader counts, too.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.sim.checkers.guarantees import is_flushed, partition_of_path
from barnabas.sim.histories.events import Happened, History, Registered, StateWritten

_LOSSES: Final = frozenset({"power loss", "wipe", "flip"})


@dataclass(frozen=True, slots=True)
class _State:
    """Who is in sync or eligible from now on; only those who have lost nothing in their registration."""

    holders: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Loss:
    broker_id: int


@dataclass(slots=True)
class _Timeline:
    """What happened to a partition, in order."""

    times: list[float] = field(default_factory=list)
    steps: list[_State | _Loss] = field(default_factory=list)

    def add(self, at: float, step: _State | _Loss) -> None:
        self.times.append(at)
        self.steps.append(step)


class Custody:
    def __init__(self, history: History) -> None:
        self._timelines = _timelines(history)
        self._lost_from = cache(self._find_loss)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._timelines

    def lost_at(self, partition: TopicPartition, since: float, until: float) -> float | None:
        """When nobody was left who must have what was committed at some moment in between; None: there always was.

        The earliest such time, if the moment is not known exactly.
        """
        times = self._timelines[partition].times
        first, last = bisect_right(times, since) - 1, bisect_right(times, until) - 1
        losses = [self._lost_from(partition, slot) for slot in range(max(0, first), last + 1)]
        return min((loss for loss in losses if loss is not None), default=None)

    def losses(self, partition: TopicPartition) -> list[float]:
        """All times at which something that was committed before may have been lost."""
        slots = range(len(self._timelines[partition].times))
        found = {self._lost_from(partition, slot) for slot in slots}
        return sorted(at for at in found if at is not None)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [one for one in self._timelines if one.topic == topic]

    def _find_loss(self, partition: TopicPartition, slot: int) -> float | None:
        """Of what was committed between this step and the next one."""
        timeline = self._timelines[partition]
        have = _in_sync(timeline, slot)
        if not have:
            return timeline.times[slot]
        for at, step in zip(timeline.times[slot + 1 :], timeline.steps[slot + 1 :], strict=True):
            have = have - {step.broker_id} if isinstance(step, _Loss) else have | step.holders
            if not have:
                return at
        return None


def _in_sync(timeline: _Timeline, slot: int) -> frozenset[int]:
    """Who is in sync or eligible after this step, without those who lost what they had."""
    lost: set[int] = set()
    for step in reversed(timeline.steps[: slot + 1]):
        if isinstance(step, _State):
            return step.holders - lost
        lost.add(step.broker_id)
    return frozenset()


def _timelines(history: History) -> dict[TopicPartition, _Timeline]:
    settings = history.topic_settings()
    found: dict[TopicPartition, _Timeline] = {}
    registered: dict[int, int] = {}
    lost: dict[tuple[TopicPartition, int], int] = {}
    """In which registration a broker last lost something of a partition."""
    for event in history.events:
        if isinstance(event, Registered):
            registered[event.broker_id] = event.broker_epoch
        elif isinstance(event, StateWritten):
            partition = event.partition
            members = (*event.isr, *event.elr)
            holders = frozenset(one for one, epoch in members if epoch > lost.get((partition, one), -1))
            found.setdefault(partition, _Timeline()).add(event.at, _State(holders))
        elif isinstance(event, Happened) and event.what in _LOSSES:
            broker_id = int(event.client.rpartition("-")[2])
            for partition in _losing(event, list(found), settings):
                lost[partition, broker_id] = registered.get(broker_id, 0)
                found[partition].add(event.at, _Loss(broker_id))
    return found


def _losing(
    event: Happened, partitions: list[TopicPartition], settings: dict[str, dict[str, str]]
) -> list[TopicPartition]:
    """Of which partitions a broker may have lost records."""
    match event.what:
        case "power loss":
            return [one for one in partitions if not is_flushed(settings.get(one.topic, {}))]
        case "flip":
            damaged = partition_of_path(event.details)
            return [one for one in partitions if one == damaged]
        case _:
            return partitions
