"""Groups and their members, as an operator sees them: listed, described, deleted, members removed.

A group is known to its coordinator alone: a listing asks every broker, everything else the coordinator. Apache Kafka
also has groups of newer protocols (*kinds* "consumer", "share", "streams"); they are listed as what they are, and
described without their members, which only APIs tell that are not spoken here.

Committed offsets are in `group_offsets`.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.errors import raise_for
from barnabas.client.group.consumer_protocol import (
    PROTOCOL_TYPE,
    MemberSubscription,
    decode_assignment,
    decode_subscription,
)
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError, MalformedResponse
from barnabas.wire.leaders import NodeEndpoint
from barnabas.wire.messages import Message
from barnabas.wire.values import Values

CLASSIC: Final = "classic"
NO_MEMBERS: Final = frozenset({"Empty", "Dead"})
"""The states of a group without members."""

_STATES_FROM: Final = 4
_KINDS_FROM: Final = 5
_MANY_LEAVE_FROM: Final = 3


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group: str
    protocol_type: str
    """Of its members: "consumer", "connect"; empty for a group that only has offsets."""
    state: str
    """In Kafka's words: "Stable", "Empty", "PreparingRebalance"; empty where the broker is too old to tell."""
    kind: str
    """In Kafka's words: "classic", "consumer", "share", "streams"; empty where the broker is too old to tell."""
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    """Of a static member."""
    client_id: str
    host: str
    subscription: MemberSubscription | None
    """None when the member is no consumer, or while the group has not agreed."""
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group: str
    kind: str
    state: str
    protocol_type: str
    protocol: str
    """The assignor that the members agreed on; empty while there is none."""
    coordinator: NodeEndpoint
    members: tuple[GroupMember, ...]
    are_members_known: bool
    """False for a group whose members the broker does not tell us of."""

    @property
    def is_active(self) -> bool:
        return self.state not in NO_MEMBERS


async def list_groups(
    cluster: Cluster, *, states: Collection[str] = (), kinds: Collection[str] = ()
) -> list[ListedGroup]:
    """The groups of all brokers by name; only those in one of the states and of one of the kinds, where some are given.

    UNSUPPORTED_VERSION when a broker is too old for the filter.
    """

    async def attempt() -> list[ListedGroup]:
        node_ids = sorted((await cluster.refresh(())).brokers)
        lists = await asyncio.gather(*(_list_of(cluster, node_id, states, kinds) for node_id in node_ids))
        return sorted((one for listed in lists for one in listed), key=lambda one: one.group)

    return await cluster.retry("the groups could not be listed", attempt)


async def describe_group(cluster: Cluster, group: str) -> GroupDescription:
    """GROUP_ID_NOT_FOUND when there is none of this name."""
    described = (await describe_groups(cluster, [group]))[group]
    if described is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group '{group}' does not exist")
    return described


async def describe_groups(cluster: Cluster, groups: Collection[str]) -> dict[str, GroupDescription | None]:
    """None where there is no group of the name."""
    described = await asyncio.gather(*(_describe(cluster, group) for group in groups))
    return dict(zip(groups, described, strict=True))


async def delete_group(cluster: Cluster, group: str) -> None:
    """NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND when there is none of this name."""
    problem = (await delete_groups(cluster, [group]))[group]
    if problem is not None:
        raise problem


async def delete_groups(cluster: Cluster, groups: Collection[str]) -> dict[str, KafkaError | None]:
    """Deletes groups with all their offsets; for each, why it is still there, or None."""

    async def delete(group: str) -> KafkaError | None:
        async def attempt() -> None:
            async with cluster.coordinator(group) as connection:
                reply = await connection.call(ApiKey.DELETE_GROUPS, {"groups_names": [group]})
                (answer,) = reply.results
                raise_for_group(answer.error_code.value, group)

        try:
            await cluster.retry(f"group '{group}' could not be deleted", attempt)
        except KafkaError as error:
            return error
        return None

    problems = await asyncio.gather(*(delete(group) for group in groups))
    return dict(zip(groups, problems, strict=True))


async def remove_members(
    cluster: Cluster,
    group: str,
    *,
    instance_ids: Collection[str] = (),
    member_ids: Collection[str] = (),
    reason: str = "removed by an operator",
) -> dict[str, KafkaError | None]:
    """Makes members leave, static ones by their instance ids; for each id, why it is still there, or None.

    A member that still runs joins again: this is for those that are gone and whose session has not ended yet.
    """
    identities: list[Values] = [
        *({"member_id": "", "group_instance_id": instance_id, "reason": reason} for instance_id in instance_ids),
        *({"member_id": member_id, "group_instance_id": None, "reason": reason} for member_id in member_ids),
    ]

    async def attempt() -> dict[str, KafkaError | None]:
        async with cluster.coordinator(group) as connection:
            if connection.version(ApiKey.LEAVE_GROUP) < _MANY_LEAVE_FROM:
                message = f"the broker at {connection.name} is too old to remove members"
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
            reply = await connection.call(ApiKey.LEAVE_GROUP, {"group_id": group, "members": identities})
            raise_for_group(reply.error_code.value, group)
            problems: dict[str, KafkaError | None] = {}
            for answer in reply.members:
                code = ErrorCode.of(answer.error_code.value)
                name = answer.group_instance_id or answer.member_id
                problem = KafkaError(code, f"member '{name}' of group '{group}'")
                problems[name] = None if code is ErrorCode.NONE else problem
            return problems

    return await cluster.retry(f"the members of group '{group}' could not be removed", attempt)


def raise_for_group(code: int, group: str, message: str | None = None) -> None:
    """Raises the error that a reply carries for a group, if it carries one."""
    match code:
        case ErrorCode.GROUP_ID_NOT_FOUND:
            message = f"group '{group}' does not exist"
        case ErrorCode.NON_EMPTY_GROUP:
            message = f"group '{group}' has active members: stop them first"
    if code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP):
        raise KafkaError(ErrorCode.of(code), message or "")
    raise_for(code, f"group '{group}'", message)


async def _list_of(
    cluster: Cluster, node_id: int, states: Collection[str], kinds: Collection[str]
) -> list[ListedGroup]:
    connection = await cluster.connection(node_id)
    version = connection.version(ApiKey.LIST_GROUPS)
    if (states and version < _STATES_FROM) or (kinds and version < _KINDS_FROM):
        message = f"the broker at {connection.name} is too old to list groups by their state or kind"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
    values = {"states_filter": list(states), "types_filter": list(kinds)}
    reply = await connection.call(ApiKey.LIST_GROUPS, values)
    raise_for(reply.error_code.value, f"the groups of broker {node_id}")
    return [
        ListedGroup(
            str(one.group_id),
            one.protocol_type,
            getattr(one, "group_state", ""),
            getattr(one, "group_type", ""),
            node_id,
        )
        for one in reply.groups
    ]


async def _describe(cluster: Cluster, group: str) -> GroupDescription | None:
    async def attempt() -> GroupDescription | None:
        coordinator = await cluster.coordinators.find(group)
        async with cluster.coordinator(group) as connection:
            values = {"groups": [group], "include_authorized_operations": False}
            reply = await connection.call(ApiKey.DESCRIBE_GROUPS, values)
            (answer,) = reply.groups
            if answer.error_code.value == ErrorCode.GROUP_ID_NOT_FOUND or answer.group_state == "Dead":
                return await _describe_other_kind(cluster, group, coordinator)
            raise_for_group(answer.error_code.value, group, getattr(answer, "error_message", None))
            return GroupDescription(
                group,
                CLASSIC,
                answer.group_state,
                answer.protocol_type,
                answer.protocol_data,
                coordinator,
                tuple(_member(member, answer.protocol_type) for member in answer.members),
                are_members_known=True,
            )

    return await cluster.retry(f"group '{group}' could not be described", attempt)


async def _describe_other_kind(cluster: Cluster, group: str, coordinator: NodeEndpoint) -> GroupDescription | None:
    """A group that is no classic one is denied by DescribeGroups, but listed."""
    for listed in await _list_of(cluster, coordinator.node_id, (), ()):
        if listed.group == group and listed.kind not in ("", CLASSIC):
            is_known = listed.state in NO_MEMBERS
            return GroupDescription(
                group, listed.kind, listed.state, listed.protocol_type, "", coordinator, (), are_members_known=is_known
            )
    return None


def _member(member: Message, protocol_type: str) -> GroupMember:
    subscription = None
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        # Whatever a client put there: one that cannot be read must not hide the group.
        try:
            subscription = decode_subscription(member.member_metadata) if member.member_metadata else None
            assignment = decode_assignment(member.member_assignment)
        except MalformedResponse:
            pass
    return GroupMember(
        member.member_id,
        getattr(member, "group_instance_id", None),
        member.client_id,
        member.client_host,
        subscription,
        assignment,
    )
