"""Compaction never removes the last record of a key.

For each record of a compacted topic that was acknowledged (by all replicas, if there are several) one of these is true
at the end:

- it is stored;
- a later record of its key is stored;
- a later record of its key was a tombstone, which may be gone with all that it deleted (one whose offset nobody knows
  counts as later);
- a loss of power took it (`power_loss`).
"""

from collections.abc import Iterator
from math import inf

from barnabas.base.ids import TopicPartition
from barnabas.sim.checkers.guarantees import damaged_partitions, deleted_topics, is_compacted, replicated_partitions
from barnabas.sim.checkers.power_loss import PowerLosses
from barnabas.sim.histories.events import Acked, History, Sent

_Key = tuple[TopicPartition, bytes | None]


def check_compaction(history: History) -> Iterator[str]:
    if not history.is_complete:
        return
    settings, losses = history.topic_settings(), PowerLosses(history)
    damaged, deleted = damaged_partitions(history), deleted_topics(history)
    replicated = replicated_partitions(history)
    sent = {event.number: event for event in history.of(Sent)}
    stored: dict[_Key, int] = {}
    for partition, log in history.final.items():
        for record in log.records:
            stored[partition, record.key] = record.offset
    tombstones = _last_tombstones(history)
    for ack in history.of(Acked):
        call, topic = sent[ack.number], ack.partition.topic
        if (
            ack.offset < 0
            or call.value is None
            or (call.acks == 1 and ack.partition in replicated)
            or ack.partition in damaged
            or topic in deleted
            or not is_compacted(settings.get(topic, {}))
            or ack.partition not in history.final
        ):
            continue
        key = (ack.partition, call.key)
        if stored.get(key, -1) >= ack.offset or tombstones.get(key, -1) > ack.offset:
            continue
        if objection := losses.objection(ack.client, ack.at, ack.partition, ack.offset):
            yield (
                f"{call.value!r}, acknowledged at {ack.at:.3f} s at offset {ack.offset} of {ack.partition}, was the "
                f"last record of key {call.key!r} and is gone; {objection}"
            )


def _last_tombstones(history: History) -> dict[_Key, float]:
    """Where the last tombstone of each key may be."""
    offsets = {event.number: event.offset for event in history.of(Acked)}
    last: dict[_Key, float] = {}
    for call in history.of(Sent):
        if call.value is None:
            offset = offsets.get(call.number, -1)
            key = (call.partition, call.key)
            last[key] = max(last.get(key, -1), offset if offset >= 0 else inf)
    return last
