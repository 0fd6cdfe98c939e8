"""Every record that anybody is shown was sent: to that partition, with that key and that value.

Damage is no excuse: a broker shows what it has, or an error, but never what nobody wrote.
"""

from collections.abc import Iterator

from barnabas.base.ids import TopicPartition
from barnabas.sim.histories.events import History, Sent, Shown, ShownRecord


def check_origins(history: History) -> Iterator[str]:
    sent: set[tuple[TopicPartition, bytes | None, bytes | None]] = set()
    for event in history.events:
        if isinstance(event, Sent):
            sent.add((event.partition, event.key, event.value))
        elif isinstance(event, Shown):
            where = f"shown to {event.client} at {event.at:.3f} s"
            yield from _strangers(sent, event.partition, event.records, where)
    for partition, log in history.final.items():
        yield from _strangers(sent, partition, log.records, "in the final log")


def _strangers(
    sent: set[tuple[TopicPartition, bytes | None, bytes | None]],
    partition: TopicPartition,
    records: tuple[ShownRecord, ...],
    where: str,
) -> Iterator[str]:
    for record in records:
        if (partition, record.key, record.value) not in sent:
            yield f"{record.key!r}={record.value!r} at offset {record.offset} of {partition}, {where}, was never sent"
