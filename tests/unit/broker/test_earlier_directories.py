"""Directories of one broker, written by the last commit before there were clusters, open with all that is in them.

`before_clusters.tar.xz` has two: one after a clean stop, with 30 orders and 5 prices; and the same one after ten more
orders and a SIGKILL. The group `kitchen` has committed offset 3 of each partition.
"""

import tarfile
from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.client.configs import Resource, ResourceType, describe_configs
from barnabas.client.producing.partitioner import partition_for_key
from tests.support.broker_process import BrokerProcess
from tests.support.testing_broker import PATIENCE

ARCHIVE = Path(__file__).with_name("before_clusters.tar.xz")
CLUSTER_ID = "v_3TlN-NTDSgDLWLqiKQKQ"
ORDERS_ID = "LROB24T3Qy60i2kSQ4olMg"
KEPT = {"offsets.retention.minutes": str(2**31 - 1)}
"""Commits are years old."""


def records(client: BlockingClient, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    return sorted((one.partition.partition, one.key, one.value) for one in client.read(topic))


def keyed(number: int, partitions: int) -> tuple[int, bytes, bytes]:
    key = b"key %d" % number
    return partition_for_key(key, partitions), key, b"value %d" % number


@pytest.mark.slow
@pytest.mark.parametrize(("end", "count"), [("stopped", 30), ("killed", 40)])
def test_directory_from_before_clusters_opens_and_goes_on(tmp_path: Path, end: str, count: int) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    orders = [keyed(number, 3) for number in range(count)]
    with BrokerProcess(tmp_path, KEPT, tmp_path / end) as process:
        with BlockingClient(process.bootstrap, PATIENCE) as client:
            assert records(client, "orders") == sorted(orders)
            assert records(client, "prices") == [keyed(number, 1) for number in range(5)]
            committed = client.committed_offsets("kitchen")
            assert {place: one.offset for place, one in committed.items()} == {
                TopicPartition("orders", index): 3 for index in range(3)
            }
            assert client.wait_for(client.cluster.refresh(["orders"])).cluster_id == CLUSTER_ID
            topic = Resource(ResourceType.TOPIC, "orders")
            [retention] = client.wait_for(describe_configs(client.cluster, topic, ["retention.ms"]))
            assert retention.value == "-1"
            client.create_topic("more")
            client.produce("orders", [b"new"], key=lambda value: value)
        process.stop()
        process.start()
        with BlockingClient(process.bootstrap, PATIENCE) as client:
            assert len(records(client, "orders")) == count + 1
            assert records(client, "more") == []
    assert ORDERS_ID in (tmp_path / end / "orders-0" / "partition.metadata").read_text()
