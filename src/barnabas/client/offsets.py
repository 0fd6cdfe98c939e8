"""Where a partition begins and ends, and which offset a time has: the ListOffsets API, asked at the leaders."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from barnabas.base.ids import Offset, TimestampMs, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages import Message

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
"""Times that mean a place: behind the last record, at the first one, at the one with the largest timestamp."""

_NO_OFFSET: Final = -1
_CONSUMER: Final = -1


class Isolation(IntEnum):
    """Which records of transactions are seen: all, or only those that were committed."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class ListedOffset:
    offset: Offset
    timestamp_ms: TimestampMs
    """Of the record at the offset, where a time was asked for; else -1."""
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    times: Mapping[TopicPartition, TimestampMs],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, ListedOffset | None]:
    """The first offset whose record is at least as late as the time, or the place that the time stands for.

    None where no record is so late. With READ_COMMITTED the end is where the first open transaction begins.
    """
    found: dict[TopicPartition, ListedOffset | None] = {}

    async def attempt() -> None:
        missing = [partition for partition in times if partition not in found]
        led = await cluster.by_leader(missing)
        answers = await asyncio.gather(
            *(_ask_leader(cluster, leader_id, partitions, times, isolation) for leader_id, partitions in led.items()),
            return_exceptions=True,
        )
        problems = []
        for answer in answers:
            if isinstance(answer, BaseException):
                problems.append(answer)
            else:
                problems += _take(answer, found)
        if problems:
            raise problems[0]

    topics = {partition.topic for partition in times}
    await cluster.retry("the offsets could not be looked up", attempt, topics)
    return found


async def end_offsets(
    cluster: Cluster, partitions: Collection[TopicPartition], isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> dict[TopicPartition, Offset]:
    return await _places(cluster, partitions, LATEST, isolation)


async def start_offsets(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
    return await _places(cluster, partitions, EARLIEST, Isolation.READ_UNCOMMITTED)


async def _places(
    cluster: Cluster, partitions: Collection[TopicPartition], place: int, isolation: Isolation
) -> dict[TopicPartition, Offset]:
    listed = await list_offsets(cluster, dict.fromkeys(partitions, place), isolation)
    return {partition: 0 if offset is None else offset.offset for partition, offset in listed.items()}


async def _ask_leader(
    cluster: Cluster,
    leader_id: int,
    partitions: Sequence[TopicPartition],
    times: Mapping[TopicPartition, TimestampMs],
    isolation: Isolation,
) -> Message:
    topics: dict[str, list[dict[str, int]]] = {}
    for partition in partitions:
        asked = {
            "partition_index": partition.partition,
            "current_leader_epoch": cluster.view.leader(partition).leader_epoch,
            "timestamp": times[partition],
        }
        topics.setdefault(partition.topic, []).append(asked)
    values = {
        "replica_id": _CONSUMER,
        "isolation_level": int(isolation),
        "topics": [{"name": name, "partitions": members} for name, members in topics.items()],
        "timeout_ms": int(cluster.options.connection.request_timeout_seconds * 1000),
    }
    return await cluster.call(leader_id, ApiKey.LIST_OFFSETS, values)


def _take(answer: Message, found: dict[TopicPartition, ListedOffset | None]) -> list[KafkaError]:
    """Keeps what an answer tells, and returns what it refuses."""
    problems = []
    for topic in answer.topics:
        for reply in topic.partitions:
            partition = TopicPartition(topic.name, reply.partition_index)
            code = ErrorCode.of(reply.error_code.value)
            if code != ErrorCode.NONE:
                problems.append(KafkaError(code, f"the offset of {partition}"))
            elif reply.offset == _NO_OFFSET:
                found[partition] = None
            else:
                found[partition] = ListedOffset(reply.offset, reply.timestamp, getattr(reply, "leader_epoch", -1))
    return problems
