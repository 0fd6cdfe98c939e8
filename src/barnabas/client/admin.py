"""What an operator asks of a cluster: topics, partitions, records to delete, the brokers and their disks.

Each call goes to the broker that must carry it out (the controller, a leader, or a named broker); `Cluster.retry`
decides what is retried. Settings are in `configs`, offsets in `offsets`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from barnabas.base.ids import Offset, TopicPartition
from barnabas.base.uuid import ZERO_UUID
from barnabas.client.cluster import Cluster
from barnabas.client.errors import UnknownTopic, raise_for
from barnabas.client.metadata import TopicMetadata
from barnabas.net.errors import NetworkFailed
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages import Message
from barnabas.wire.values import Values

_Result = TypeVar("_Result")

BROKER_DEFAULT: Final = -1
"""As many partitions or replicas as the brokers' settings say."""
_GONE_SECONDS_MAX: Final = 2.0
_PAGE_PARTITIONS: Final = 2000


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    topic_id: UUID
    partitions: int
    """-1 where the broker is too old to tell; so is the replication factor."""
    replication_factor: int
    settings: Mapping[str, str | None]
    """Its own and the defaults; none where the broker is too old to tell, or the user may not know them."""


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class ReplicasInChange:
    replicas: tuple[int, ...]
    """All of them, those that are added or go as well."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogDirectory:
    node_id: int
    path: str
    problem: ErrorCode
    total_bytes: int
    usable_bytes: int
    """Both -1 where the broker does not tell."""
    partition_bytes: Mapping[TopicPartition, int]
    stray_count: int = 0
    """Directories of partitions that the cluster's metadata does not have; 0 where the broker does not tell."""
    strays: Sequence[str] = ()
    """The names of the first of them."""


class Admin:
    """Stands on a `Cluster`, which its owner closes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def topics(self) -> list[TopicMetadata]:
        """All topics, by name."""
        view = await self._cluster.retry("the topics could not be listed", lambda: self._cluster.refresh(None))
        return [view.topics[name] for name in sorted(view.topics)]

    async def topic(self, name: str) -> TopicMetadata:
        """What is true now, not what is remembered."""

        async def attempt() -> TopicMetadata:
            return (await self._cluster.refresh([name])).topic(name)

        return await self._cluster.retry(f"topic '{name}' could not be described", attempt)

    async def eligible_leaders(self, name: str) -> dict[int, tuple[int, ...]]:
        """Replicas that are not in sync and may lead without loss (KIP-966), by partition, where there are any.

        Empty where the broker is too old to tell.
        """
        found: dict[int, tuple[int, ...]] = {}
        cursor: Values | None = None

        async def attempt() -> Values | None:
            connection = await self._cluster.any_connection()
            if not connection.speaks(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
                return None
            values = {"topics": [{"name": name}], "response_partition_limit": _PAGE_PARTITIONS, "cursor": cursor}
            reply = await connection.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, values)
            (topic,) = reply.topics
            raise_for(topic.error_code.value, f"topic '{name}'")
            for one in topic.partitions:
                if one.eligible_leader_replicas:
                    found[one.partition_index] = tuple(one.eligible_leader_replicas)
            following = reply.next_cursor
            if following is None:
                return None
            return {"topic_name": following.topic_name, "partition_index": following.partition_index}

        while True:
            cursor = await self._cluster.retry(f"topic '{name}' could not be described", attempt)
            if cursor is None:
                return found

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Returns when the topic can be used. `assignments` names the brokers of each partition, instead of counts."""
        topic = {
            "name": name,
            "num_partitions": BROKER_DEFAULT if assignments else partitions,
            "replication_factor": BROKER_DEFAULT if assignments else replication_factor,
            "assignments": [
                {"partition_index": index, "broker_ids": list(brokers)}
                for index, brokers in (assignments or {}).items()
            ],
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        created = await self._ask_controller(
            f"topic '{name}' could not be created",
            ApiKey.CREATE_TOPICS,
            {"topics": [topic], "timeout_ms": self._timeout_ms, "validate_only": validate_only},
            _created,
        )
        if not validate_only:
            await self._until_usable(name, created.partitions)
        return created

    async def delete_topic(self, name: str) -> None:
        """Returns when the brokers no longer list the topic."""

        def read(reply: Message) -> None:
            (answer,) = reply.responses
            raise_for(answer.error_code.value, f"topic '{name}'", getattr(answer, "error_message", None))

        await self._ask_controller(
            f"topic '{name}' could not be deleted",
            ApiKey.DELETE_TOPICS,
            {"topics": [{"name": name}], "topic_names": [name], "timeout_ms": self._timeout_ms},
            read,
        )
        # It is deleted, whatever comes now: somebody may have made it again, or the broker may have gone.
        with contextlib.suppress(TimeoutError, NetworkFailed, KafkaError):
            async with asyncio.timeout(_GONE_SECONDS_MAX):
                tries = 0
                while name in (await self._cluster.refresh([name])).topics:
                    await asyncio.sleep(self._cluster.backoff_seconds(tries))
                    tries += 1

    async def create_partitions(self, name: str, total: int) -> None:
        """Raises the number of a topic's partitions to `total`."""

        def read(reply: Message) -> None:
            (answer,) = reply.results
            raise_for(answer.error_code.value, f"topic '{name}'", answer.error_message)

        await self._ask_controller(
            f"partitions could not be added to topic '{name}'",
            ApiKey.CREATE_PARTITIONS,
            {"topics": [{"name": name, "count": total, "assignments": None}], "timeout_ms": self._timeout_ms},
            read,
        )
        await self._until_usable(name, total)

    async def assign_replicas(
        self, topic: str, replicas: Mapping[int, Sequence[int]], *, allow_factor_change: bool = True
    ) -> None:
        """Gives partitions the replicas named, the preferred leader first; Barnabas can only add some.

        Returns when it is written, and before the new ones are in sync: `partitions_in_change`.
        """

        def read(reply: Message) -> None:
            raise_for(reply.error_code.value, f"topic '{topic}'", reply.error_message)
            for answered in reply.responses:
                for one in answered.partitions:
                    place = str(TopicPartition(answered.name, one.partition_index))
                    raise_for(one.error_code.value, place, one.error_message)

        partitions = [{"partition_index": index, "replicas": list(brokers)} for index, brokers in replicas.items()]
        values = {
            "timeout_ms": self._timeout_ms,
            "allow_replication_factor_change": allow_factor_change,
            "topics": [{"name": topic, "partitions": partitions}],
        }
        what = f"the replicas of topic '{topic}' could not be changed"
        await self._ask_controller(what, ApiKey.ALTER_PARTITION_REASSIGNMENTS, values, read)

    async def partitions_in_change(self) -> dict[TopicPartition, ReplicasInChange]:
        """The partitions whose replicas are being changed; empty when all that was assigned is in sync."""

        def read(reply: Message) -> dict[TopicPartition, ReplicasInChange]:
            raise_for(reply.error_code.value, "the partitions", reply.error_message)
            return {
                TopicPartition(topic.name, one.partition_index): ReplicasInChange(
                    tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
                )
                for topic in reply.topics
                for one in topic.partitions
            }

        what = "the partitions whose replicas are being changed could not be listed"
        values = {"timeout_ms": self._timeout_ms, "topics": None}
        return await self._ask_controller(what, ApiKey.LIST_PARTITION_REASSIGNMENTS, values, read)

    async def delete_records(self, before: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
        """Deletes what lies before an offset of each partition (-1: everything); returns where they begin now."""
        deleted: dict[TopicPartition, Offset] = {}

        async def attempt() -> None:
            missing = [partition for partition in before if partition not in deleted]
            for leader_id, partitions in (await self._cluster.by_leader(missing)).items():
                wanted: dict[str, list[Values]] = {}
                for partition in partitions:
                    place = {"partition_index": partition.partition, "offset": before[partition]}
                    wanted.setdefault(partition.topic, []).append(place)
                topics = [{"name": topic, "partitions": places} for topic, places in wanted.items()]
                values = {"topics": topics, "timeout_ms": self._timeout_ms}
                reply = await self._cluster.call(leader_id, ApiKey.DELETE_RECORDS, values)
                for topic in reply.topics:
                    for answer in topic.partitions:
                        partition = TopicPartition(topic.name, answer.partition_index)
                        raise_for(answer.error_code.value, f"deleting records of {partition}")
                        deleted[partition] = answer.low_watermark

        topics = {partition.topic for partition in before}
        await self._cluster.retry("the records could not be deleted", attempt, topics)
        return deleted

    async def describe_cluster(self) -> ClusterDescription:
        async def attempt() -> ClusterDescription:
            connection = await self._cluster.any_connection()
            reply = await connection.call(ApiKey.DESCRIBE_CLUSTER, {})
            raise_for(reply.error_code.value, "the cluster", reply.error_message)
            brokers = [BrokerDescription(one.broker_id, one.host, one.port, one.rack) for one in reply.brokers]
            brokers.sort(key=lambda broker: broker.node_id)
            return ClusterDescription(reply.cluster_id, reply.controller_id, tuple(brokers))

        return await self._cluster.retry("the cluster could not be described", attempt)

    async def log_directories(self) -> list[LogDirectory]:
        """Of every broker, in the order of the brokers' ids."""

        async def attempt() -> list[LogDirectory]:
            node_ids = sorted(self._cluster.view.brokers)
            found = await asyncio.gather(*(self.log_directories_of(node_id) for node_id in node_ids))
            return [directory for directories in found for directory in directories]

        return await self._cluster.retry("the log directories could not be described", attempt)

    async def log_directories_of(self, node_id: int) -> list[LogDirectory]:
        """Of one broker, which is asked once."""
        reply = await self._cluster.call(node_id, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
        return [_log_directory(node_id, result) for result in reply.results]

    @property
    def _timeout_ms(self) -> int:
        return int(self._cluster.options.connection.request_timeout_seconds * 1000)

    async def _ask_controller(
        self, what: str, api_key: int, values: Values, read: Callable[[Message], _Result]
    ) -> _Result:
        async def attempt() -> _Result:
            view = self._cluster.view
            node_id = view.controller_id if view.controller_id in view.brokers else next(iter(view.brokers), -1)
            wait_seconds = self._timeout_ms / 1000
            return read(await self._cluster.call(node_id, api_key, values, wait_seconds=wait_seconds))

        return await self._cluster.retry(what, attempt)

    async def _until_usable(self, name: str, partitions: int) -> None:
        """Waits until the brokers list the partitions and their leaders, which they may learn after the creator."""

        async def attempt() -> None:
            try:
                topic = (await self._cluster.refresh([name])).topic(name)
            except UnknownTopic as error:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(error)) from None
            for index in range(max(partitions, 1)):
                if index >= len(topic.partitions):
                    raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{index} is not known yet")
                self._cluster.view.leader(TopicPartition(name, index))

        await self._cluster.retry(f"topic '{name}' has no leaders", attempt)


def _created(reply: Message) -> CreatedTopic:
    (answer,) = reply.topics
    raise_for(answer.error_code.value, f"topic '{answer.name}'", answer.error_message)
    return CreatedTopic(
        answer.name,
        getattr(answer, "topic_id", None) or ZERO_UUID,
        getattr(answer, "num_partitions", -1),
        getattr(answer, "replication_factor", -1),
        {one.name: one.value for one in getattr(answer, "configs", None) or ()},
    )


def _log_directory(node_id: int, result: Message) -> LogDirectory:
    return LogDirectory(
        node_id,
        result.log_dir,
        ErrorCode.of(result.error_code.value),
        getattr(result, "total_bytes", -1),
        getattr(result, "usable_bytes", -1),
        {
            TopicPartition(topic.name, partition.partition_index): partition.partition_size
            for topic in result.topics
            for partition in topic.partitions
            if not partition.is_future_key
        },
        getattr(result, "stray_count", 0),
        getattr(result, "strays", ()),
    )
