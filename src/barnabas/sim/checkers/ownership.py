"""A partition has one owner in each generation of its group.

A restarted static member gets back what it had, in the same generation, so owners are told apart by actor, not by
member id. The group's generation is in a log that is not synced: after a loss of power it may be counted once more. A
member tells what it owns when it polls, which may be some time after it was told.
"""

from collections.abc import Iterator
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.sim.checkers.guarantees import OFFSETS_TOPIC, are_groups_damaged
from barnabas.sim.checkers.power_loss import PowerLosses
from barnabas.sim.histories.events import History, Owned

_TOLD_SECONDS_MAX: Final = 15.0
"""A member that does not poll for ten seconds leaves its group; it may be paused for five."""


def check_ownership(history: History) -> Iterator[str]:
    if are_groups_damaged(history):
        return
    losses = PowerLosses(history).of_topic(OFFSETS_TOPIC)
    owners: dict[tuple[str, int, TopicPartition], Owned] = {}
    for event in history.of(Owned):
        for partition in event.partitions:
            place = (event.group, event.generation, partition)
            other = owners.get(place)
            owners[place] = event
            if other is None or other.client == event.client:
                continue
            if not any(other.at - _TOLD_SECONDS_MAX <= at <= event.at for at in losses):
                yield (
                    f"{partition} has two owners in generation {event.generation} of {event.group}: {other.client} "
                    f"({other.member_id}, {other.at:.3f} s) and {event.client} ({event.member_id}, {event.at:.3f} s)"
                )
