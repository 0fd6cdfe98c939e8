"""Our own client at a broker that was started again: every leader epoch that it knows is an old one."""

from pathlib import Path

from barnabas.base.ids import TopicPartition
from barnabas.client.cluster import Cluster, ClusterOptions
from barnabas.client.offsets import end_offsets
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.metadata.table import MemoryTable
from tests.support.broker_parts import served_broker
from tests.support.network import run

ORDERS = TopicPartition("orders", 0)
PATIENT = ClusterOptions(retry_timeout_seconds=120, backoff_seconds_min=0.01)


def test_consumer_goes_on_in_the_epochs_of_the_next_start(tmp_path: Path) -> None:
    table = MemoryTable()

    async def scenario() -> None:
        async with served_broker(tmp_path, table=table) as broker:
            await broker.create("orders")
            broker.append("orders", [1, 2])
            bootstrap = broker.broker.bootstrap
            cluster = Cluster(bootstrap, PATIENT)
            consumer = Consumer(cluster, ConsumerOptions(wait_ms_max=20))
            consumer.assign({ORDERS: 0})
            assert [one.next_offset for one in await consumer.poll()] == [2]
            broker.broker.drop_connections()
        async with served_broker(tmp_path, table=table, listeners=f"PLAINTEXT://{bootstrap}") as broker:
            assert broker.partition("orders").leader_epoch == 1
            broker.append("orders", [3])
            assert [one.next_offset for one in await consumer.poll()] == [3]
            assert cluster.view.partition(ORDERS).leader_epoch == 1
            assert await end_offsets(cluster, [ORDERS]) == {ORDERS: 3}
            await consumer.close()
            await cluster.close()

    run(scenario())
