"""Records of one producer stand in a partition in the order in which they were sent.

Our client has one batch of a partition under way at a time, and sends the next when that one is settled. So

- acknowledged records have ascending offsets, whatever the producer's kind, until a loss of power: what is sent after
  it may get the offset of what was lost; so may what is sent after a change of leaders, where the leader alone
  acknowledges (acks=1) and has replicas;
- the final log of an idempotent producer holds its records in order, exactly.

The order ends where a process does: the next one is another producer, and a request of the old one may still be on its
way. Left out are records that failed, because a request that the client has given up may reach the log after later
ones, and those that were sent with acks=0, whose order Kafka promises for one connection only.
"""

from collections.abc import Iterator
from itertools import pairwise

from barnabas.base.ids import Offset, TopicPartition
from barnabas.sim.checkers.delays import Delays
from barnabas.sim.checkers.guarantees import damaged_partitions, deleted_topics, replicated_partitions
from barnabas.sim.checkers.power_loss import PowerLosses
from barnabas.sim.histories.events import Acked, Happened, History, SendFailed, Sent

_Producer = tuple[str, int, TopicPartition]
"""An actor, which of its lives, and where it sends."""


def check_producer_order(history: History) -> Iterator[str]:
    damaged, deleted = damaged_partitions(history), deleted_topics(history)
    producers = {
        producer: sent
        for producer, sent in _sent_by_producer(history).items()
        if producer[2] not in damaged and producer[2].topic not in deleted
    }
    yield from _acknowledged_order(history, producers)
    yield from _stored_order(history, producers)


def _sent_by_producer(history: History) -> dict[_Producer, list[Sent]]:
    failed = {event.number for event in history.of(SendFailed)}
    lives: dict[str, int] = {}
    found: dict[_Producer, list[Sent]] = {}
    for event in history.events:
        if isinstance(event, Happened) and event.what == "kill":
            lives[event.client] = lives.get(event.client, 0) + 1
        elif isinstance(event, Sent) and event.acks != 0 and event.number not in failed:
            found.setdefault((event.client, lives.get(event.client, 0), event.partition), []).append(event)
    return found


def _acknowledged_order(history: History, producers: dict[_Producer, list[Sent]]) -> Iterator[str]:
    acks = {event.number: event for event in history.of(Acked) if event.offset >= 0}
    losses, delays, replicated = PowerLosses(history), Delays(history), replicated_partitions(history)
    for (client, _, partition), sent in producers.items():
        if partition in replicated and any(one.acks == 1 for one in sent):
            continue
        known = [acks[one.number] for one in sent if one.number in acks]
        for first, second in pairwise(known):
            since = delays.given_after(client, first.at)
            if second.offset <= first.offset and not losses.happened(partition, since, second.at):
                yield (
                    f"{client} sent number {first.number} before number {second.number} to {partition}, and they were "
                    f"acknowledged at offsets {first.offset} and {second.offset}"
                )


def _stored_order(history: History, producers: dict[_Producer, list[Sent]]) -> Iterator[str]:
    for (client, _, partition), sent in producers.items():
        log = history.final.get(partition)
        numbers = {one.value: one.number for one in sent if one.is_idempotent and one.value is not None}
        if log is None or not numbers:
            continue
        first_offsets: dict[int, Offset] = {}  # a record that is there twice is for another checker
        for record in log.records:
            if record.value in numbers:
                first_offsets.setdefault(numbers[record.value], record.offset)
        stored = sorted(first_offsets.items(), key=lambda one: one[1])
        for first, second in pairwise(stored):
            if second[0] < first[0]:
                yield (
                    f"{partition} holds number {first[0]} of {client} at offset {first[1]} and number {second[0]}, "
                    f"which was sent earlier, at offset {second[1]}"
                )
