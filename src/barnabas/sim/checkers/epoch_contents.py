"""No offset has two contents within one leader epoch, for any reader at any time.

A broker that lost the end of a log writes other records at the same offsets, but in a later epoch. The epoch and offset
of a batch are not part of its checksum, so a partition in which a bit was changed proves nothing.
"""

from collections.abc import Iterator

from barnabas.base.ids import TopicPartition
from barnabas.sim.checkers.guarantees import damaged_partitions, deleted_topics
from barnabas.sim.histories.events import History, Shown, ShownRecord


def check_epoch_contents(history: History) -> Iterator[str]:
    damaged, deleted = damaged_partitions(history), deleted_topics(history)
    known: dict[tuple[TopicPartition, int, int], tuple[ShownRecord, str]] = {}
    for partition, record, where in _seen(history):
        if partition in damaged or partition.topic in deleted:
            continue
        first, first_where = known.setdefault((partition, record.leader_epoch, record.offset), (record, where))
        if first != record:
            yield (
                f"offset {record.offset} of {partition} in epoch {record.leader_epoch} has two contents: "
                f"{first.key!r}={first.value!r} {first_where}, {record.key!r}={record.value!r} {where}"
            )


def _seen(history: History) -> Iterator[tuple[TopicPartition, ShownRecord, str]]:
    for event in history.of(Shown):
        where = f"shown to {event.client} at {event.at:.3f} s"
        for record in event.records:
            yield event.partition, record, where
    for partition, log in history.final.items():
        for record in log.records:
            yield partition, record, "in the final log"
