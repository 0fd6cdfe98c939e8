"""A record that anybody was shown stays where it is, with its content, unless a guarantee allows its loss.

Readers are shown what is committed, so this is promised whatever the producer asked for. What retention, DeleteRecords
and compaction remove may be gone, but nothing else ever stands at that offset.
"""

from collections.abc import Iterator

from barnabas.base.ids import Offset, TopicPartition
from barnabas.sim.checkers.guarantees import (
    damaged_partitions,
    deleted_topics,
    is_compacted,
    may_expire,
    trimmed_topics,
)
from barnabas.sim.checkers.power_loss import PowerLosses
from barnabas.sim.checkers.readings import Readings
from barnabas.sim.histories.events import History, Shown, ShownRecord

_Seen = dict[tuple[TopicPartition, Offset], tuple[ShownRecord, Shown]]


def check_seen_records(history: History) -> Iterator[str]:
    losses, readings = PowerLosses(history), Readings(history)
    damaged, deleted = damaged_partitions(history), deleted_topics(history)
    seen: _Seen = {}
    for event in history.of(Shown):
        if event.partition in damaged or event.partition.topic in deleted:
            continue
        for record in event.records:
            place = (event.partition, record.offset)
            first, first_event = seen.setdefault(place, (record, event))
            if first == record:
                continue
            since = min(readings.given_after(first_event), readings.given_after(event))  # in either order
            if not losses.happened(event.partition, since, event.at):
                yield (
                    f"{_what(first, first_event)} was {record.value!r} in epoch {record.leader_epoch} when "
                    f"{event.client} was shown it at {event.at:.3f} s"
                )
            seen[place] = (record, event)
    if history.is_complete:
        yield from _gone(history, seen, losses, readings)


def _gone(history: History, seen: _Seen, losses: PowerLosses, readings: Readings) -> Iterator[str]:
    settings, trimmed = history.topic_settings(), trimmed_topics(history)
    stored = {partition: {one.offset: one for one in log.records} for partition, log in history.final.items()}
    for (partition, offset), (record, event) in seen.items():
        log = history.final.get(partition)
        if log is None:
            continue  # nobody could read it: `readable` says so
        final, of_topic = stored[partition].get(offset), settings.get(partition.topic, {})
        if final == record:
            continue
        if final is None:
            may_start_later = may_expire(of_topic) or partition.topic in trimmed
            is_gone = offset >= log.end_offset or not (is_compacted(of_topic) or may_start_later)
            end = f"is gone at the end: the log holds {log.start_offset} to {log.end_offset}"
        else:
            is_gone = True
            end = f"is {final.value!r} in epoch {final.leader_epoch} at the end"
        if not is_gone:
            continue
        objection = losses.objection_between(readings.given_after(event), event.at, partition, offset)
        if objection:
            yield f"{_what(record, event)} {end}; {objection}"


def _what(record: ShownRecord, event: Shown) -> str:
    return (
        f"offset {record.offset} of {event.partition}, {record.value!r} in epoch {record.leader_epoch} as "
        f"{event.client} was shown it at {event.at:.3f} s,"
    )
