"""Where logs start: retention and DeleteRecords move it, and nothing else does.

| topic | the start of its logs |
|---|---|
| without retention settings of its own, never asked for DeleteRecords | 0, at all times |
| any other | never goes back, but by a loss of power, or with another leader |

Compaction leaves the start where it is. Retention renames the files of old segments without a sync, and checkpoints the
start only now and then, so a loss of power may bring old segments back. DeleteRecords is on disk when it is answered,
so nothing brings back what it deleted (docs/broker.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.base.ids import Offset, TopicPartition
from barnabas.sim.checkers.calls import admin_calls
from barnabas.sim.checkers.guarantees import (
    damaged_partitions,
    deleted_topics,
    may_expire,
    power_losses,
    trimmed_topics,
    wipes,
)
from barnabas.sim.histories.events import History, StateWritten


@dataclass(frozen=True, slots=True)
class _Start:
    offset: Offset
    called_at: float
    done_at: float
    is_promised: bool

    def __str__(self) -> str:
        return f"{self.offset} ({'DeleteRecords, ' if self.is_promised else ''}{self.done_at:.3f} s)"


def check_log_starts(history: History) -> Iterator[str]:
    settings, losses, wiped = history.topic_settings(), power_losses(history), wipes(history)
    damaged, deleted, trimmed = damaged_partitions(history), deleted_topics(history), trimmed_topics(history)
    changes = _leader_changes(history)
    for partition, starts in sorted(_seen_starts(history).items()):
        topic = partition.topic
        if partition in damaged or topic in deleted:
            continue
        if not may_expire(settings.get(topic, {})) and topic not in trimmed:
            yield from (
                f"{partition} starts at {start}, though nothing deletes its records" for start in starts if start.offset
            )
            continue
        for number, later in enumerate(starts):
            for earlier in starts[:number]:
                excuses = wiped if earlier.is_promised else [*losses, *changes.get(partition, ())]
                if (
                    later.offset < earlier.offset
                    and earlier.done_at < later.called_at
                    and not any(earlier.called_at <= at <= later.done_at for at in excuses)
                ):
                    yield f"the start of {partition} went back from {earlier} to {later}"


def _leader_changes(history: History) -> dict[TopicPartition, list[float]]:
    """When each partition got another leader: retention is each broker's own."""
    found: dict[TopicPartition, list[float]] = {}
    for event in history.of(StateWritten):
        if event.leader_epoch:
            found.setdefault(event.partition, []).append(event.at)
    return found


def _seen_starts(history: History) -> dict[TopicPartition, list[_Start]]:
    found: dict[TopicPartition, list[_Start]] = {}
    for call in admin_calls(history, "list_offsets", "delete_records"):
        done_at = call.span.done_at
        if done_at is None:
            continue
        if isinstance(call.result, tuple):
            for partition, start, _ in call.result:
                found.setdefault(partition, []).append(_Start(start, call.span.called_at, done_at, False))
        elif isinstance(call.result, int):
            index = call.called.argument("partition")
            assert isinstance(index, int)
            start_here = _Start(call.result, call.span.called_at, done_at, True)
            found.setdefault(TopicPartition(call.topic, index), []).append(start_here)
    end_at = history.events[-1].at + 1.0 if history.events else 0.0
    for partition, log in history.final.items():
        found.setdefault(partition, []).append(_Start(log.start_offset, end_at, end_at, False))
    return found
