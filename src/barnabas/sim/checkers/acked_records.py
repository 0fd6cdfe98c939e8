"""Every acknowledged record is stored at its offset with its content, unless a guarantee allows its loss."""

from collections.abc import Iterator

from barnabas.sim.checkers.guarantees import (
    damaged_partitions,
    deleted_topics,
    is_flushed,
    may_delete,
    power_losses,
    trimmed_topics,
)
from barnabas.sim.histories.events import Acked, History, Sent


def check_acked_records(history: History) -> Iterator[str]:
    if not history.is_complete:
        return
    sent = {event.number: event for event in history.of(Sent)}
    settings, losses = history.topic_settings(), power_losses(history)
    damaged, deleted, trimmed = damaged_partitions(history), deleted_topics(history), trimmed_topics(history)
    stored = {partition: {record.offset: record for record in log.records} for partition, log in history.final.items()}
    for ack in history.of(Acked):
        partition, topic = ack.partition, ack.partition.topic
        call = sent[ack.number]
        if call.acks == 0 or ack.offset < 0 or partition in damaged or topic in deleted:
            continue
        of_topic = settings.get(topic, {})
        what = f"{call.value!r} of {ack.client}, acknowledged at {ack.at:.3f} s at offset {ack.offset} of {partition},"
        log = history.final.get(partition)
        if log is None:
            yield f"{what} is in a partition that is not there at the end"
            continue
        record = stored[partition].get(ack.offset)
        is_excused = not is_flushed(of_topic) and any(at >= ack.at for at in losses)
        if record is None:
            if may_delete(of_topic) or (topic in trimmed and ack.offset < log.start_offset) or is_excused:
                continue
            yield f"{what} is lost: the log holds {log.start_offset} to {log.end_offset}"
        elif (record.key, record.value) != (call.key, call.value) and not is_excused:
            yield f"{what} is replaced by {record.value!r} in epoch {record.leader_epoch}"
