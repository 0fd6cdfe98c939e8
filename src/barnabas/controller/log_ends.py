"""Asks replicas where their logs end (ReplicaLogInfo), for partitions whose states name nobody who could lead.

A broker that does not answer, or cannot say, is missing from what comes back: then nobody is elected yet.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from barnabas.base.ids import TopicPartition
from barnabas.controller.broker_link import BrokerLink
from barnabas.controller.in_sync import LogEnd
from barnabas.metadata.image import ClusterImage, Topic
from barnabas.net.errors import NetworkFailed
from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedResponse

logger = logging.getLogger(__name__)

_VERSION: Final = ALL_APIS[ApiKey.REPLICA_LOG_INFO].version_max
_ANSWER_SECONDS: Final = 10.0
_TOGETHER_MAX: Final = 10_000
"""Partitions in one request."""

Unled: TypeAlias = Mapping[TopicPartition, Topic]
Ends: TypeAlias = Mapping[TopicPartition, Mapping[int, LogEnd]]
LinkTo: TypeAlias = Callable[[ClusterImage, int], BrokerLink | None]
"""The way to a broker, for one conversation; None when there is none."""


async def ask_log_ends(image: ClusterImage, partitions: Unled, link_to: LinkTo) -> Ends:
    """What each replica says of its log, as far as they answer."""
    wanted: dict[int, list[TopicPartition]] = {}
    for name, topic in partitions.items():
        for broker_id in topic.partitions[name.partition].replicas:
            wanted.setdefault(broker_id, []).append(name)
    ends: dict[TopicPartition, dict[int, LogEnd]] = {name: {} for name in partitions}

    async def ask(broker_id: int, names: list[TopicPartition]) -> None:
        link = link_to(image, broker_id)
        if link is None:
            return
        try:
            for start in range(0, len(names), _TOGETHER_MAX):
                ids = {name: partitions[name].id for name in names[start : start + _TOGETHER_MAX]}
                for name, end in (await _ask(link, ids)).items():
                    ends[name][broker_id] = end
        except (NetworkFailed, MalformedResponse) as error:
            logger.info("broker %d does not say where its logs end: %s", broker_id, error)
        finally:
            await link.close()

    async with asyncio.TaskGroup() as group:
        for broker_id, names in wanted.items():
            group.create_task(ask(broker_id, names))
    return ends


async def _ask(link: BrokerLink, ids: Mapping[TopicPartition, UUID]) -> dict[TopicPartition, LogEnd]:
    by_topic: dict[UUID, dict[int, TopicPartition]] = {}
    for name, topic_id in ids.items():
        by_topic.setdefault(topic_id, {})[name.partition] = name
    topics = [{"topic_id": topic_id, "partitions": list(names)} for topic_id, names in by_topic.items()]
    answer = await link.ask(ApiKey.REPLICA_LOG_INFO, _VERSION, {"topics": topics}, _ANSWER_SECONDS)
    if ErrorCode.of(answer.error_code) is not ErrorCode.NONE:
        return {}
    found: dict[TopicPartition, LogEnd] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            told = by_topic.get(topic.topic_id, {}).get(one.partition_index)
            if told is not None and ErrorCode.of(one.error_code) is ErrorCode.NONE:
                found[told] = LogEnd(answer.broker_epoch, one.last_epoch, one.end_offset)
    return found


def ends_text(ends: Mapping[int, LogEnd]) -> str:
    """For the log: what each replica has."""
    return ", ".join(
        f"broker {broker_id} ends at {end.end_offset} in epoch {end.last_epoch}" for broker_id, end in ends.items()
    )
