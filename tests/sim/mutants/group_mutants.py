"""Mistakes of the group coordinator, and of the clients that are members."""

from typing import Any

from barnabas.client.group.assignors import RangeAssignor
from barnabas.groups import loading
from barnabas.groups.effects import Effects
from barnabas.groups.group import Group
from barnabas.groups.shard import GroupShard
from tests.sim.mutants.planting import Mutants, with_fault

mutants = Mutants()
_CRASH = with_fault("kill", "stop", "crash_at_disk_call")


@mutants.plant(
    "commit-answered-before-logged",
    "A commit of offsets is answered before it is in the log.",
    GroupShard,
    "carry_out",
    checkers=("commits",),
    telling=with_fault("disk_full", "disk_error"),
)
def _(original: Any) -> Any:
    def carry_out(self: GroupShard, effects: Effects) -> None:
        replies, effects.replies = effects.replies, []
        original(self, effects)
        for token, result in replies:
            token(result)

    return carry_out


@mutants.plant(
    "loading-skips-last-record",
    "A coordinator that loads its partition leaves out the last record of each run of batches.",
    loading,
    "_hand_over",
    checkers=("commits", "ownership"),
    telling=_CRASH,
)
def _(original: Any) -> Any:
    return lambda run, start, stop, take: original(run, start, stop - 1, take) if stop - 1 > start else None


@mutants.plant(
    "generation-not-raised",
    "A rebalance gives out new assignments in the generation before it.",
    Group,
    "next_generation",
    checkers=("ownership",),
)
def _(original: Any) -> Any:
    def next_generation(self: Group) -> None:
        if self.generation <= 0:
            original(self)

    return next_generation


@mutants.plant(
    "partition-assigned-twice",
    "The range assignor ends each stretch one partition too late.",
    RangeAssignor,
    "assign",
    checkers=("ownership",),
)
def _(original: Any) -> Any:
    def assign(self: RangeAssignor, counts: Any, members: Any) -> Any:
        assigned = original(self, counts, members)
        for partitions in assigned.values():
            for last in [one for one in partitions if one._replace(partition=one.partition + 1) not in partitions]:
                if last.partition + 1 < counts[last.topic]:
                    partitions.append(last._replace(partition=last.partition + 1))
        return assigned

    return assign
