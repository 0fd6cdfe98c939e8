"""The states of a group and the ways between them, as data.

`TRANSITIONS` is the only place that says which way is open and why it is taken: `group.Group.move_to` asserts it, and
the drawing in docs/groups.md is `mermaid()`.
"""

from enum import Enum
from typing import Final, NamedTuple


class GroupState(Enum):
    """Named as Kafka's tools print them."""

    EMPTY = "Empty"
    """No members; perhaps committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are joining the next generation; their requests wait."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation has its members, and waits for its leader's assignment."""
    STABLE = "Stable"
    """Every member has its assignment."""
    DEAD = "Dead"
    """Removed; nobody finds it any more."""


class Transition(NamedTuple):
    source: GroupState
    target: GroupState
    when: str


TRANSITIONS: Final = (
    Transition(GroupState.EMPTY, GroupState.PREPARING_REBALANCE, "the first member joins"),
    Transition(GroupState.EMPTY, GroupState.DEAD, "deleted, or its last offset expired"),
    Transition(
        GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, "all have joined, or the timeout has passed"
    ),
    Transition(GroupState.PREPARING_REBALANCE, GroupState.EMPTY, "no member is left"),
    Transition(GroupState.COMPLETING_REBALANCE, GroupState.STABLE, "the leader's assignment is written"),
    Transition(
        GroupState.COMPLETING_REBALANCE,
        GroupState.PREPARING_REBALANCE,
        "a member joins, changes, leaves or is silent",
    ),
    Transition(GroupState.STABLE, GroupState.PREPARING_REBALANCE, "a member joins, changes, leaves or is silent"),
)

ALLOWED: Final = frozenset((transition.source, transition.target) for transition in TRANSITIONS)


def mermaid() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {GroupState.EMPTY.value}"]
    lines += [f"    {source.value} --> {target.value}: {when}" for source, target, when in TRANSITIONS]
    lines.append(f"    {GroupState.DEAD.value} --> [*]")
    return "\n".join(lines)
