"""Every acknowledged record is stored at its offset with its content, unless a guarantee allows its loss.

| gone | allowed |
|---|---|
| below the start of the log | where retention or DeleteRecords may move it |
| within a compacted topic | where a later record has the same key: `compaction` looks at that |
| anywhere else, or replaced by another record | by a loss of power, from some offset on (`power_loss`) |
| acknowledged by the leader alone, of several replicas | always |

A producer that is told that its batch was there already does not learn the offset: then the value must be somewhere.
"""

from collections.abc import Iterator

from barnabas.sim.checkers.guarantees import (
    damaged_partitions,
    deleted_topics,
    is_compacted,
    may_expire,
    replicated_partitions,
    trimmed_topics,
)
from barnabas.sim.checkers.power_loss import PowerLosses
from barnabas.sim.histories.events import Acked, History, Sent


def check_acked_records(history: History) -> Iterator[str]:
    if not history.is_complete:
        return
    sent = {event.number: event for event in history.of(Sent)}
    settings, losses = history.topic_settings(), PowerLosses(history)
    damaged, deleted, trimmed = damaged_partitions(history), deleted_topics(history), trimmed_topics(history)
    replicated = replicated_partitions(history)
    stored = {partition: {record.offset: record for record in log.records} for partition, log in history.final.items()}
    values = {partition: {record.value for record in log.records} for partition, log in history.final.items()}
    for ack in history.of(Acked):
        partition, topic = ack.partition, ack.partition.topic
        call = sent[ack.number]
        if call.acks == 0 or (call.acks == 1 and partition in replicated) or partition in damaged or topic in deleted:
            continue
        of_topic = settings.get(topic, {})
        what = f"{call.value!r} of {ack.client}, acknowledged at {ack.at:.3f} s at offset {ack.offset} of {partition},"
        place = (ack.client, ack.at, partition, ack.offset)
        log = history.final.get(partition)
        if log is None:
            yield f"{what} is in a partition that is not there at the end"
            continue
        may_start_later = may_expire(of_topic) or topic in trimmed
        record = stored[partition].get(ack.offset)
        if ack.offset < 0:
            is_missing = call.value not in values[partition] and not may_start_later and not is_compacted(of_topic)
            if is_missing and (objection := losses.objection(*place)):
                yield f"{what} is lost; {objection}"
        elif record is None:
            is_deleted = may_start_later and ack.offset < log.start_offset
            if not is_deleted and not is_compacted(of_topic) and (objection := losses.objection(*place)):
                yield f"{what} is lost: the log holds {log.start_offset} to {log.end_offset}; {objection}"
        elif (record.key, record.value) != (call.key, call.value) and (objection := losses.objection(*place)):
            yield f"{what} is replaced by {record.value!r} in epoch {record.leader_epoch}; {objection}"
