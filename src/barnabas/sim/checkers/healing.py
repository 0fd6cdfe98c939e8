"""A cluster heals by itself: soon after the last fault every partition has a leader, and all its replicas are in sync.

A bit that changed at rest is no fault that ends.
"""

from collections.abc import Iterator

from barnabas.sim.checkers.guarantees import damaged_partitions
from barnabas.sim.histories.events import History, NotHealed


def check_healing(history: History) -> Iterator[str]:
    damaged = damaged_partitions(history)
    for event in history.of(NotHealed):
        if event.partition not in damaged:
            yield f"{event.partition} is not healed at {event.at:.3f} s: {event.details}"
