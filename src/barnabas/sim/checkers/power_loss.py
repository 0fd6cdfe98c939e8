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
    def __init__(self, history: History) -> None:
        self._delays = Delays(history)
        self._losses = sorted(power_losses(history))
        self._wipes = sorted(wipes(history))
        self._settings = history.topic_settings()
        self._survivors = _find_survivors(history) if self._losses else {}

    def objection(self, ack: Acked) -> str | None:
        """Why no loss of power explains that this record is gone; None when one does."""
        losses = self._wipes if is_flushed(self._settings.get(ack.partition.topic, {})) else self._losses
        slot = bisect_left(losses, self._delays.given_after(ack.client, ack.at))
        if slot == len(losses):
            return "no loss of power explains it"
        lost_at = losses[slot]  # the first is the best excuse: least was written before it
        survivors = self._survivors.get(ack.partition)
        oldest = survivors.oldest_after(ack.offset) if survivors is not None else None
        if oldest is not None and oldest[0] < lost_at:
            return (
                f"the loss of power at {lost_at:.3f} s does not explain it: offset {oldest[1]} is there, "
                f"which was written by {oldest[0]:.3f} s"
            )
        return None


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
