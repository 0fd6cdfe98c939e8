"""Retention keeps every record for as long as the topic asks for.

What somebody knows of the start of a log, a listing of offsets or a reader that had to go ahead, is compared with the
records that were acknowledged below it: each must be older than the shortest `retention.ms` that its topic ever had.
Partitions of which somebody asked DeleteRecords are left out, and histories in which a broker's clock was changed.
"""

from collections.abc import Iterator
from typing import Final

from barnabas.base.ids import Offset, TopicPartition
from barnabas.sim.checkers.calls import admin_calls
from barnabas.sim.checkers.guarantees import damaged_partitions, replicated_partitions
from barnabas.sim.histories.events import Acked, Happened, History, Positioned, Sent, Shown

_SLACK_SECONDS: Final = 0.1


def check_early_expiry(history: History) -> Iterator[str]:
    if any(event.what in ("clock jump", "clock drift") for event in history.of(Happened)):
        return
    settings, damaged = history.topic_settings(), damaged_partitions(history)
    trimmed = {
        TopicPartition(one.topic, int(str(one.called.argument("partition"))))
        for one in admin_calls(history, "delete_records")
    }
    sent = {event.number: event for event in history.of(Sent)}
    replicated = replicated_partitions(history)
    youngest: dict[TopicPartition, list[tuple[Offset, float]]] = {}
    for ack in history.of(Acked):
        if ack.offset >= 0 and (sent[ack.number].acks != 1 or ack.partition not in replicated):
            youngest.setdefault(ack.partition, []).append((ack.offset, sent[ack.number].at))
    for partition, start, at in _starts(history):
        texts = settings.get(partition.topic, {}).get("retention.ms", "")
        if not texts or partition in trimmed or partition in damaged:
            continue
        kept = min(int(text) for text in texts.split("|")) / 1000
        for offset, sent_at in youngest.get(partition, ()):
            if offset < start and 0 <= at - sent_at < kept - _SLACK_SECONDS:  # a wiped log gives its offsets again
                yield (
                    f"{partition} starts at {start} at {at:.3f} s, but offset {offset} was sent at {sent_at:.3f} s "
                    f"and is kept for {kept:g} s"
                )


def _starts(history: History) -> Iterator[tuple[TopicPartition, Offset, float]]:
    for call in admin_calls(history, "list_offsets"):
        if call.span.done_at is not None and isinstance(call.result, tuple):
            for partition, start, _ in call.result:
                yield partition, start, call.span.done_at
    positions: dict[tuple[str, TopicPartition], Offset] = {}
    for event in history.events:
        if isinstance(event, Positioned):
            positions[event.client, event.partition] = event.offset
        elif isinstance(event, Shown):
            known = positions.get((event.client, event.partition), event.first_offset)
            if event.first_offset > known:
                yield event.partition, event.first_offset, event.at
            positions[event.client, event.partition] = event.next_offset
