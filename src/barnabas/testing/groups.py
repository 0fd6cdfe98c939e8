"""Consumer groups as the broker's coordinator knows them, for tests that wait for their consumers."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from barnabas.base.ids import Offset, TopicPartition
from barnabas.broker import app
from barnabas.client.group.consumer_protocol import decode_assignment
from barnabas.groups.state import GroupShardState
from barnabas.groups.transitions import GroupState
from barnabas.testing.records import Brokers
from barnabas.wire.errors import KafkaError, MalformedResponse

_LOOK_AGAIN_SECONDS: Final = 0.005
"""Most changes of a group leave no trace that could be waited for."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    client_id: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]
    """What it was assigned; nothing while the group rebalances for the first time, or if it is no consumer."""


@dataclass(frozen=True, slots=True)
class ObservedGroup:
    """A group at one moment. A group that was never used is `Dead`, as in Kafka's tools."""

    group_id: str
    state: str
    """Empty, PreparingRebalance, CompletingRebalance, Stable or Dead."""
    members: tuple[GroupMember, ...]
    committed: Mapping[TopicPartition, Offset]
    lag: int | None
    """Records that are still to be read, of all partitions that are assigned or have a commit (without one: all of
    their records); None where there are no such partitions."""


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """What a test waits for; None is anything."""

    state: str | None
    members: int | None
    lag: int | None

    def __post_init__(self) -> None:
        names = [one.value for one in GroupState]
        if self.state is not None and self.state not in names:
            raise ValueError(f"there is no group state {self.state!r}; they are {', '.join(names)}")

    def holds(self, group: ObservedGroup) -> bool:
        return (
            (self.state is None or group.state == self.state)
            and (self.members is None or len(group.members) == self.members)
            and (self.lag is None or (group.lag is not None and group.lag <= self.lag))
        )

    def __str__(self) -> str:
        parts = [
            None if self.state is None else f"state {self.state}",
            None if self.members is None else _counted_members(self.members),
            None if self.lag is None else f"a lag of at most {self.lag}",
        ]
        return ", ".join(part for part in parts if part is not None)


async def wait_for_group(
    brokers: Brokers, group_id: str, condition: GroupCondition, timeout_seconds: float
) -> ObservedGroup:
    """TimeoutError, with what the group was at the end, when the condition does not hold in time."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + timeout_seconds
    while True:
        group = await observe_group(brokers(), group_id)
        if condition.holds(group):
            return group
        if loop.time() >= give_up_at:
            lag = "unknown lag" if group.lag is None else f"a lag of {group.lag}"
            raise TimeoutError(
                f"after {timeout_seconds:g} s group {group_id} is {group.state} with "
                f"{_counted_members(len(group.members))} and {lag}; waited for {condition}"
            )
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


async def observe_group(brokers: Sequence[app.Broker], group_id: str) -> ObservedGroup:
    """What is known of a group once its coordinator has loaded it."""
    state = await _coordinated(brokers, group_id)
    if state is None:  # nobody coordinates it: no group was ever used, or its broker does not run
        return ObservedGroup(group_id, GroupState.DEAD.value, (), {}, None)
    found = state.describe(group_id)
    if found is None:
        return ObservedGroup(group_id, GroupState.DEAD.value, (), {}, None)
    committed = {
        TopicPartition(topic, partition): one.offset
        for topic, offsets in state.fetch_all_offsets(group_id)
        for partition, one in offsets
    }
    members = tuple(
        GroupMember(one.member_id, one.client_id, one.instance_id, _partitions(one.assignment)) for one in found.members
    )
    assigned = [partition for member in members for partition in member.partitions]
    return ObservedGroup(group_id, found.state.value, members, committed, _lag(brokers, assigned, committed))


async def _coordinated(brokers: Sequence[app.Broker], group_id: str) -> GroupShardState | None:
    for broker in brokers:
        coordinator = broker.services.groups.coordinator
        await coordinator.wait_loaded()
        with suppress(KafkaError):
            return coordinator.state_for(group_id)
    return None


def _partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        return decode_assignment(assignment)
    except MalformedResponse:
        return ()


def _lag(
    brokers: Sequence[app.Broker], assigned: Iterable[TopicPartition], committed: Mapping[TopicPartition, Offset]
) -> int | None:
    lags = []
    for topic, index in {*assigned, *committed}:
        found = (broker.replicas.get(topic, index) for broker in brokers)
        partition = next((one for one in found if one is not None), None)
        if partition is not None:
            read = committed.get(TopicPartition(topic, index), partition.log_start_offset)
            lags.append(max(0, partition.high_watermark - read))
    return sum(lags) if lags else None


def _counted_members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"
