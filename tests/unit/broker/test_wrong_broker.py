"""A client that asks the wrong broker is told the right one and where it is (KIP-951)."""

import asyncio
from pathlib import Path

from barnabas.client.broker_connection import BrokerConnection, ConnectionOptions
from barnabas.metadata.image import BrokerChanged, RegisteredBroker, TopicChanged
from barnabas.metadata.znodes import Endpoint
from barnabas.net.sockets import SocketNetwork
from barnabas.records.builder import BatchBuilder
from barnabas.wire.errors import ErrorCode
from barnabas.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.leaders import LeaderAndEpoch, NodeEndpoint
from barnabas.wire.produce_request import ProducePartition, ProduceRequest, ProduceTopic
from tests.support.broker_parts import LISTENER, ServedBroker, served_broker

OTHER = RegisteredBroker(2, 1, (Endpoint(LISTENER, "PLAINTEXT", "other.example", 19092),), rack="b")


async def move_to_other(served: ServedBroker) -> None:
    """What the image says when another broker has become the leader."""
    replicas = served.broker.replicas
    topic = replicas.image.topics["orders"]
    moved = topic.partitions[0]._replace(leader=OTHER.id, leader_epoch=4)
    image = replicas.image.apply([BrokerChanged(OTHER), TopicChanged(topic.with_partitions([moved]))])
    await replicas.apply(image)


def test_client_of_the_wrong_broker_is_told_the_leader_and_its_address(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as served:
            await served.create("orders")
            topic_id = served.broker.replicas.image.topics["orders"].id
            await move_to_other(served)
            listener = served.broker.listeners[0]
            connection = await BrokerConnection.open(SocketNetwork(), listener.host, listener.port, ConnectionOptions())
            batch = BatchBuilder()
            batch.append(1, b"key", b"value")
            produced = await connection.produce(
                ProduceRequest(None, -1, 1000, [ProduceTopic("orders", topic_id, [ProducePartition(0, batch.build())])])
            )
            fetched = await connection.fetch(
                FetchRequest(0, 1, 1000, topics=[FetchTopic("orders", topic_id, [FetchPartition(0, -1, 0, -1, -1, 9)])])
            )
            await connection.close()

            assert produced is not None
            for answer in (produced, fetched):
                [partition] = answer.topics[0].partitions
                assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert partition.current_leader == LeaderAndEpoch(OTHER.id, 4)
                assert list(answer.node_endpoints) == [NodeEndpoint(OTHER.id, "other.example", 19092, "b")]

    asyncio.run(scenario())
