"""Everything can be read when all is healed: every partition, and the committed offsets of every group.

What the history damaged may be refused.
"""

from collections.abc import Iterator

from barnabas.sim.checkers.guarantees import are_groups_damaged, damaged_partitions
from barnabas.sim.histories.events import CommitCalled, Happened, History


def check_readable(history: History) -> Iterator[str]:
    excused = {str(partition) for partition in damaged_partitions(history)}
    if are_groups_damaged(history):
        excused |= {call.group for call in history.of(CommitCalled)}
    for event in history.of(Happened):
        if event.what == "unreadable" and event.details.partition(": ")[0] not in excused:
            yield f"at {event.at:.3f} s, with everything healed, this could not be read: {event.details}"
