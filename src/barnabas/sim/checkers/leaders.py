"""A partition has one leader in each leader epoch: one broker, in one of its lives.

A broker that was started again may have lost the end of its log: it never leads in an epoch in which it led before.
"""

from collections.abc import Iterator

from barnabas.base.ids import TopicPartition
from barnabas.sim.checkers.guarantees import deleted_topics
from barnabas.sim.histories.events import History, Led


def check_leaders(history: History) -> Iterator[str]:
    deleted = deleted_topics(history)
    leaders: dict[tuple[TopicPartition, int], Led] = {}
    for event in history.of(Led):
        if event.partition.topic in deleted:
            continue
        first = leaders.setdefault((event.partition, event.leader_epoch), event)
        if (first.client, first.life) != (event.client, event.life):
            yield (f"{event.partition} has two leaders in epoch {event.leader_epoch}: {_who(first)} and {_who(event)}")


def _who(event: Led) -> str:
    return f"{event.client} in its life {event.life} ({event.at:.3f} s)"
