"""`barnabas up --brokers` on a directory that was used with fewer brokers: its topics get more replicas."""

from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram
from barnabas.client.blocking import BlockingClient
from barnabas.client.metadata import TopicMetadata
from barnabas.groups.partitions import OFFSETS_TOPIC
from tests.support.cluster_process import cluster_process
from tests.support.kafka import wait_until

pytestmark = pytest.mark.slow

FEW = ("--listen", "127.0.0.1:0", "--set", "offsets.topic.num.partitions=3")


def test_topics_of_one_broker_are_raised_to_three_replicas_when_there_are_three(
    zookeeper_program: ZooKeeperProgram, tmp_path: Path
) -> None:
    values = [f"record {number}".encode() for number in range(100)]
    name = TopicPartition("orders", 0)
    with cluster_process(tmp_path, *FEW, brokers=1) as process:
        process.wait_ready()
        with BlockingClient(process.bootstrap) as client:
            client.create_topic("orders", partitions=2)
            client.produce("orders", values[:50])
            client.commit_offsets("billing", {name: 7})
            assert {len(one.replicas) for topic in client.topics() for one in topic.partitions} == {1}
        assert process.stop() == 0, process.log[-3000:]
        assert "raised" not in process.log

    with cluster_process(tmp_path, *FEW, brokers=3) as process:
        process.wait_ready()
        process.wait_for_line("raised to 3 replicas: 2 topics\n")
        with BlockingClient(process.bootstrap) as client:
            client.produce("orders", values[50:])  # with acks=all, and a minimum of 2 by now
            wait_until(lambda: not client.wait_for(client.admin.partitions_in_change()), "the new replicas to join")
            topics = {topic.name: topic for topic in client.topics()}
            assert set(topics) == {"orders", OFFSETS_TOPIC}
            assert all(are_in_sync(topic) for topic in topics.values())
            assert client.committed_offsets("billing")[name].offset == 7
            assert sorted(record.value or b"" for record in client.read("orders")) == sorted(values)
            client.create_topic("chosen", replication_factor=1)
        assert process.stop() == 0, process.log[-3000:]

    with cluster_process(tmp_path, brokers=3) as process:
        process.wait_ready()
        with BlockingClient(process.bootstrap) as client:
            wait_until(lambda: all(are_in_sync(one) for one in client.topics() if one.name != "chosen"), "all in sync")
            [chosen] = [topic for topic in client.topics() if topic.name == "chosen"]
            assert [len(one.replicas) for one in chosen.partitions] == [1]
        assert process.stop() == 0, process.log[-3000:]
        assert "raised" not in process.log


def are_in_sync(topic: TopicMetadata) -> bool:
    return all(sorted(one.in_sync_replicas) == [1, 2, 3] for one in topic.partitions)
