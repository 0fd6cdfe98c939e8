"""Which acknowledged records a loss of power may have taken.

A topic that does not flush every record may lose records when the power goes, but only the end of the log as it was at
that moment. So a record is excused only if

- the power went after the broker had acknowledged it, and
- nothing that stands after it in the final log was written before the power went: that would make it a hole.

When a record of the final log was written is not known, but it was written before it was acknowledged, and before it
was shown to anybody in the same epoch.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from barnabas.base.ids import Offset, TopicPartition
from barnabas.sim.checkers.custody import Custody
from barnabas.sim.checkers.delays import Delays
from barnabas.sim.checkers.guarantees import is_flushed, power_losses, wipes
from barnabas.sim.histories.events import Acked, History, Sent, Shown, ShownRecord


@dataclass(frozen=True, slots=True)
class _Survivors:
    """The records of a final log that are known to be old, by offset; and for each the oldest at or after it."""

    offsets: list[Offset]
    oldest: list[tuple[float, Offset]]

    def oldest_after(self, offset: Offset) -> tuple[float, Offset] | None:
        slot = bisect_right(self.offsets, offset)
        return self.oldest[slot] if slot < len(self.offsets) else None


class PowerLosses:
    """Of a broker alone, or of a cluster: there a loss of power takes what nobody else has (`custody`)."""

    def __init__(self, history: History) -> None:
        self._delays = Delays(history)
        self._custody = Custody(history)
        self._losses = sorted(power_losses(history))
        self._wipes = sorted(wipes(history))
        self._settings = history.topic_settings()
        self._survivors = _find_survivors(history) if self._losses else {}

    def objection(self, client: str, at: float, partition: TopicPartition, offset: Offset) -> str | None:
        """Why no loss of power explains that this record is gone, of which the client was told; None when one does."""
        return self.objection_between(self._delays.given_after(client, at), at, partition, offset)

    def objection_between(self, since: float, until: float, partition: TopicPartition, offset: Offset) -> str | None:
        """The same, where the broker told of the record at some moment in between."""
        lost_at = self._lost_at(partition, since, until)
        if lost_at is None:
            return "no loss of power explains it"
        survivors = self._survivors.get(partition)
        oldest = survivors.oldest_after(offset) if survivors is not None else None
        if oldest is not None and oldest[0] < lost_at:
            return (
                f"the loss of power at {lost_at:.3f} s does not explain it: offset {oldest[1]} is there, "
                f"which was written by {oldest[0]:.3f} s"
            )
        return None

    def _lost_at(self, partition: TopicPartition, since: float, until: float) -> float | None:
        """The first loss is the best excuse: least was written before it."""
        if partition in self._custody:
            return self._custody.lost_at(partition, since, until)
        losses = self._wipes if is_flushed(self._settings.get(partition.topic, {})) else self._losses
        slot = bisect_left(losses, since)
        return losses[slot] if slot < len(losses) else None

    def happened(self, partition: TopicPartition, since: float, until: float) -> bool:
        """Whether something that was committed by then may have been lost in this time."""
        if partition in self._custody:
            lost_at = self._custody.lost_at(partition, since, until)
            return lost_at is not None and lost_at <= until
        return any(since <= at <= until for at in self._losses)

    def of_topic(self, topic: str) -> list[float]:
        """All times at which a partition of the topic may have lost something."""
        partitions = self._custody.partitions_of(topic)
        return sorted(at for one in partitions for at in self._custody.losses(one)) if partitions else self._losses


def _find_survivors(history: History) -> dict[TopicPartition, _Survivors]:
    known = _first_seen(history)
    found: dict[TopicPartition, _Survivors] = {}
    for partition, log in history.final.items():
        dated = [(known[partition, record], record.offset) for record in log.records if (partition, record) in known]
        oldest = list(dated)
        for slot in range(len(oldest) - 2, -1, -1):
            oldest[slot] = min(oldest[slot], oldest[slot + 1])
        found[partition] = _Survivors([offset for _, offset in dated], oldest)
    return found


def _first_seen(history: History) -> dict[tuple[TopicPartition, ShownRecord], float]:
    """By when records of the final logs had been written, where anybody knows."""
    final = {(partition, record.offset): record for partition, log in history.final.items() for record in log.records}
    sent = {event.number: event for event in history.of(Sent)}
    seen: dict[tuple[TopicPartition, ShownRecord], float] = {}
    for event in history.events:
        if isinstance(event, Acked):
            record, call = final.get((event.partition, event.offset)), sent[event.number]
            if record is not None and (record.key, record.value) == (call.key, call.value) and call.value is not None:
                seen.setdefault((event.partition, record), event.at)
        elif isinstance(event, Shown):
            for shown in event.records:
                seen.setdefault((event.partition, shown), event.at)
    return seen
