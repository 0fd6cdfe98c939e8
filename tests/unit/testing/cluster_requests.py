"""Requests to one broker of a cluster, whoever the controller is, and looks at what all brokers know."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from barnabas.broker import app
from barnabas.controller.broker_link import BrokerLink
from barnabas.metadata.image import ClusterImage, Partition
from barnabas.net.sockets import SocketNetwork
from barnabas.testing import Cluster, ClusterBroker
from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import Message

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


class Broker(Protocol):
    """One of this process, or a process of its own."""

    @property
    def bootstrap(self) -> str: ...


def ask(broker: Broker, api: ApiKey, values: Mapping[str, Any], seconds: float = 30) -> Message:
    """The newest version of the request, to exactly this broker."""

    async def scenario() -> Message:
        host, port = broker.bootstrap.split(":")
        link = BrokerLink(SocketNetwork(), host, int(port), "test")
        try:
            return await link.ask(api, ALL_APIS[api].version_max, values, seconds)
        finally:
            await link.close()

    return asyncio.run(scenario())


def create(
    broker: Broker,
    name: str,
    partitions: int = 3,
    replication_factor: int = 1,
    placed_on: Sequence[Collection[int]] = (),
) -> ErrorCode:
    """`placed_on` has the brokers of each partition, instead of the two numbers."""
    assignments = [{"partition_index": index, "broker_ids": list(ids)} for index, ids in enumerate(placed_on)]
    topic = {
        "name": name,
        "num_partitions": -1 if placed_on else partitions,
        "replication_factor": -1 if placed_on else replication_factor,
        "assignments": assignments,
        "configs": [],
    }
    answer = ask(broker, ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 10_000, "validate_only": False})
    return ErrorCode(answer.topics[0].error_code)


def delete(broker: Broker, name: str) -> ErrorCode:
    answer = ask(broker, ApiKey.DELETE_TOPICS, {"topics": [{"name": name}], "timeout_ms": 10_000})
    return ErrorCode(answer.responses[0].error_code)


def grow(broker: Broker, name: str, partitions: int, placed_on: Sequence[int] | None = None) -> ErrorCode:
    """`placed_on` has a broker for each new partition."""
    assignments = None if placed_on is None else [{"broker_ids": [one]} for one in placed_on]
    topics = [{"name": name, "count": partitions, "assignments": assignments}]
    answer = ask(broker, ApiKey.CREATE_PARTITIONS, {"topics": topics, "timeout_ms": 10_000, "validate_only": False})
    return ErrorCode(answer.results[0].error_code)


def set_config(
    broker: Broker, resource: str, name: str, value: str | None, resource_type: int = TOPIC_RESOURCE
) -> ErrorCode:
    """None takes it away."""
    change = {"name": name, "config_operation": 1 if value is None else 0, "value": value}
    changed = {"resource_type": resource_type, "resource_name": resource, "configs": [change]}
    answer = ask(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [changed], "validate_only": False})
    return ErrorCode(answer.responses[0].error_code)


def metadata(broker: Broker, *topics: str, creates: bool = False) -> Message:
    wanted = [{"topic_id": UUID(int=0), "name": name} for name in topics]
    return ask(broker, ApiKey.METADATA, {"topics": wanted, "allow_auto_topic_creation": creates})


def served(broker: ClusterBroker) -> app.Broker:
    found = broker.served()
    assert found is not None
    return found


def image_of(broker: ClusterBroker) -> ClusterImage:
    return served(broker).running.cluster.history.image


def partition_in(broker: ClusterBroker, topic: str, index: int = 0) -> Partition:
    found = image_of(broker).partition(topic, index)
    assert found is not None
    return found


def images_are_equal(cluster: Cluster) -> bool:
    """Of all running brokers, with the places that they have come to."""
    cluster.wait_until_ready(60)
    histories = [served(one).running.cluster.history for one in cluster if one.is_running]
    return all((one.place, one.image) == (histories[0].place, histories[0].image) for one in histories)


def led_by(cluster: Cluster, topic: str, broker: ClusterBroker) -> list[int]:
    partitions = image_of(cluster.controller).topics[topic].partitions
    return [one.index for one in partitions if one.leader == broker.id]


def another(cluster: Cluster, *not_these: ClusterBroker) -> ClusterBroker:
    return next(broker for broker in cluster if broker.is_running and broker not in not_these)


def fill(cluster: Cluster, topic: str, partitions: int) -> None:
    """One record in each partition, whose value is the partition's number."""
    for index in range(partitions):
        cluster.append(topic, [str(index).encode()], partition=index)
