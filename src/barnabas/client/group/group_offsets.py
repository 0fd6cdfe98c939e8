"""How far groups have come: their committed offsets, read, written and deleted at their coordinators.

Newer versions of the APIs (10 on) name topics by their ids, so that a commit for a deleted topic never counts for a new
one of the same name; names are translated by what is known of the cluster.

A member of the group commits with its member id and generation. While the group has no members, anybody may commit:
that is how offsets are reset, and how programs that assign partitions themselves (Spark) keep their progress.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from barnabas.base.ids import NO_EPOCH, LeaderEpoch, Offset, TopicPartition
from barnabas.client.broker_connection import BrokerConnection
from barnabas.client.cluster import Cluster
from barnabas.client.errors import UnknownTopic, raise_for
from barnabas.client.group.consumer_protocol import NO_GENERATION, by_topic
from barnabas.client.group.group_admin import raise_for_group
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages import Message
from barnabas.wire.values import Values

_TOPIC_IDS_FROM: Final = 10
_MANY_GROUPS_FROM: Final = 8
_NO_OFFSET: Final = -1
_DEFAULT_RETENTION_MS: Final = -1
_HAS_MEMBERS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""Errors for a commit by a non-member when the group has members."""


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    offset: Offset
    metadata: str = ""
    """Whatever the committer wants to keep with it."""
    leader_epoch: LeaderEpoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits: a member in its generation, or (the default) no member."""

    member_id: str = ""
    generation: int = NO_GENERATION
    instance_id: str | None = None


async def committed_offsets(
    cluster: Cluster,
    group: str,
    partitions: Collection[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Of these partitions, or of all that the group has; those without a commit are left out.

    `require_stable` waits for transactions that are about to commit offsets. A group that does not exist has none.
    """
    return (await _fetch(cluster, [group], partitions, require_stable))[group]


async def committed_offsets_of(
    cluster: Cluster, groups: Collection[str]
) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """All that each of the groups has."""
    return await _fetch(cluster, groups, None, require_stable=False)


async def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Offset | OffsetAndMetadata],
    committer: Committer | None = None,
    *,
    timeout_seconds: float | None = None,
) -> None:
    """Commits for a group without members, or as one of its members.

    NON_EMPTY_GROUP when it has members and the committer is none of them; as a member REBALANCE_IN_PROGRESS,
    ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID, as the coordinator says.
    """
    if not offsets:
        return
    who = committer or Committer()
    left = dict(offsets)

    async def attempt() -> None:
        topic_ids = await _topic_ids(cluster, {partition.topic for partition in left})
        async with cluster.coordinator(group) as connection:
            reply = await connection.call(ApiKey.OFFSET_COMMIT, _commit_values(group, left, who, topic_ids))
            names = {topic_id: name for name, topic_id in topic_ids.items()}
            problems: list[KafkaError] = []
            for topic in reply.topics:
                for answer in topic.partitions:
                    partition = TopicPartition(_name(topic, names), answer.partition_index)
                    if answer.error_code.value == ErrorCode.NONE:
                        left.pop(partition, None)
                    else:
                        problems.append(_commit_problem(answer.error_code.value, group, partition, who))
            if problems:
                raise problems[0]

    topics = {partition.topic for partition in offsets}
    what = f"the offsets of group '{group}' could not be committed"
    await cluster.retry(what, attempt, topics, timeout_seconds=timeout_seconds)


async def delete_offsets(
    cluster: Cluster, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Deletes commits; for each partition, why it is still there, or None. GROUP_ID_NOT_FOUND for an unknown group."""
    topics = [
        {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in by_topic(partitions).items()
    ]

    async def attempt() -> dict[TopicPartition, KafkaError | None]:
        async with cluster.coordinator(group) as connection:
            reply = await connection.call(ApiKey.OFFSET_DELETE, {"group_id": group, "topics": topics})
            raise_for_group(reply.error_code.value, group)
            return {
                TopicPartition(str(topic.name), answer.partition_index): _delete_problem(
                    answer.error_code.value, group, TopicPartition(str(topic.name), answer.partition_index)
                )
                for topic in reply.topics
                for answer in topic.partitions
            }

    return await cluster.retry(f"the offsets of group '{group}' could not be deleted", attempt)


# --- committing -------------------------------------------------------------------------------------------------


async def _topic_ids(cluster: Cluster, topics: Iterable[str]) -> dict[str, UUID]:
    return {name: (await cluster.topic(name)).topic_id for name in sorted(topics)}


def _commit_values(
    group: str,
    offsets: Mapping[TopicPartition, Offset | OffsetAndMetadata],
    committer: Committer,
    topic_ids: Mapping[str, UUID],
) -> Values:
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition, committed in offsets.items():
        wanted = committed if isinstance(committed, OffsetAndMetadata) else OffsetAndMetadata(committed)
        entry = {
            "partition_index": partition.partition,
            "committed_offset": wanted.offset,
            "committed_leader_epoch": wanted.leader_epoch,
            "committed_metadata": wanted.metadata,
        }
        topics.setdefault(partition.topic, []).append(entry)
    return {
        "group_id": group,
        "generation_id_or_member_epoch": committer.generation,
        "member_id": committer.member_id,
        "group_instance_id": committer.instance_id,
        "retention_time_ms": _DEFAULT_RETENTION_MS,
        "topics": [
            {"name": name, "topic_id": topic_ids[name], "partitions": members} for name, members in topics.items()
        ],
    }


def _commit_problem(number: int, group: str, partition: TopicPartition, committer: Committer) -> KafkaError:
    code = ErrorCode.of(number)
    if code in _HAS_MEMBERS and not committer.member_id:
        message = f"group '{group}' has active members: stop them first"
        return KafkaError(ErrorCode.NON_EMPTY_GROUP, message)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopic(f"partition {partition} does not exist")
    return KafkaError(code, f"the offset of {partition} for group '{group}'")


def _delete_problem(number: int, group: str, partition: TopicPartition) -> KafkaError | None:
    code = ErrorCode.of(number)
    match code:
        case ErrorCode.NONE:
            return None
        case ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
            return KafkaError(code, f"members of group '{group}' read topic '{partition.topic}': stop them first")
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return UnknownTopic(f"partition {partition} does not exist")
    return KafkaError(code, f"the offset of {partition} for group '{group}'")


# --- reading ----------------------------------------------------------------------------------------------------


async def _fetch(
    cluster: Cluster, groups: Collection[str], partitions: Collection[TopicPartition] | None, require_stable: bool
) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}

    async def attempt() -> None:
        asked: dict[int, list[str]] = {}
        missing = [group for group in groups if group not in found]
        for group, node in (await cluster.coordinators.find_all(missing)).items():
            asked.setdefault(node.node_id, []).append(group)
        answers = await asyncio.gather(
            *(_fetch_from(cluster, members, partitions, require_stable, found) for members in asked.values()),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    topics = {partition.topic for partition in partitions or ()}
    await cluster.retry("the committed offsets could not be read", attempt, topics)
    return found


async def _fetch_from(
    cluster: Cluster,
    groups: list[str],
    partitions: Collection[TopicPartition] | None,
    require_stable: bool,
    found: dict[str, dict[TopicPartition, OffsetAndMetadata]],
) -> None:
    """Asks the coordinator of all these groups, and keeps what it tells."""
    async with cluster.coordinator(groups[0]) as connection:
        if connection.version(ApiKey.OFFSET_FETCH) >= _MANY_GROUPS_FROM:
            values = await _fetch_values(cluster, connection, groups, partitions, require_stable)
            for answer in (await connection.call(ApiKey.OFFSET_FETCH, values)).groups:
                await _take(cluster, str(answer.group_id), answer, found)
            return
        for group in groups:
            values = await _fetch_values(cluster, connection, [group], partitions, require_stable)
            await _take(cluster, group, await connection.call(ApiKey.OFFSET_FETCH, values), found)


async def _fetch_values(
    cluster: Cluster,
    connection: BrokerConnection,
    groups: list[str],
    partitions: Collection[TopicPartition] | None,
    require_stable: bool,
) -> Values:
    """In the form of all versions: the older ones have one group, whose topics stand beside it."""
    topics: list[dict[str, Any]] | None = None
    if partitions is not None:
        has_ids = connection.version(ApiKey.OFFSET_FETCH) >= _TOPIC_IDS_FROM
        named = by_topic(partitions)
        topic_ids = await _topic_ids(cluster, named) if has_ids else {}
        topics = [
            {"name": name, "topic_id": topic_ids.get(name), "partition_indexes": indexes}
            for name, indexes in named.items()
        ]
    return {
        "groups": [{"group_id": group, "topics": topics} for group in groups],
        "group_id": groups[0],
        "topics": topics,
        "require_stable": require_stable,
    }


async def _take(
    cluster: Cluster, group: str, answer: Message, found: dict[str, dict[TopicPartition, OffsetAndMetadata]]
) -> None:
    code = getattr(answer, "error_code", None)
    if code is not None:
        if ErrorCode.of(code.value).is_retriable:
            cluster.coordinators.forget(group)
        raise_for_group(code.value, group)
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in answer.topics:
        name = await _name_of(cluster, topic)
        for reply in topic.partitions if name else ():
            partition = TopicPartition(name, reply.partition_index)
            raise_for(reply.error_code.value, f"the offset of {partition} for group '{group}'")
            if reply.committed_offset != _NO_OFFSET:
                epoch = getattr(reply, "committed_leader_epoch", NO_EPOCH)
                offsets[partition] = OffsetAndMetadata(reply.committed_offset, reply.metadata or "", epoch)
    found[group] = offsets


async def _name_of(cluster: Cluster, topic: Message) -> str:
    """The name of a topic in a reply; empty when it has been deleted in the meantime."""
    names = {known.topic_id: known.name for known in cluster.view.topics.values()} if _has_id(topic) else {}
    if _has_id(topic) and topic.topic_id not in names:
        view = await cluster.refresh(None)
        names = {known.topic_id: known.name for known in view.topics.values()}
    return _name(topic, names)


def _has_id(topic: Message) -> bool:
    return getattr(topic, "topic_id", None) is not None


def _name(topic: Message, names: Mapping[UUID, str]) -> str:
    return names.get(topic.topic_id, "") if _has_id(topic) else str(getattr(topic, "name", ""))
