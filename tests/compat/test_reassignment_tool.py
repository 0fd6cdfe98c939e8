"""Kafka's own tool adds replicas to the partitions of a topic, follows that to its end, and is refused the rest."""

from pathlib import Path

import pytest

from barnabas.client.blocking import BlockingClient
from barnabas.testing import Cluster
from tests.support.cluster_clients.java_tools import JavaTools
from tests.support.kafka import KafkaUnavailable, java_command, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "orders"


def test_tool_adds_replicas_and_verifies_that_they_have_joined(tmp_path: Path) -> None:
    try:
        java_command("Any")
    except KafkaUnavailable as missing:
        pytest.skip(str(missing))
    tools, plan = JavaTools(), tmp_path / "plan.json"
    with Cluster(brokers=3, settings={"min.insync.replicas": 2}) as cluster:
        cluster.create_topic(TOPIC, partitions=2)
        cluster.append(TOPIC, [b"a", b"b"], partition=1)
        with BlockingClient(cluster.bootstrap) as client:
            has = {one.index: one.replicas for topic in client.topics() for one in topic.partitions}
            grown = {index: [first, *({1, 2, 3} - {first})] for index, (first,) in has.items()}
            moved = {index: [*({1, 2, 3} - {first})] for index, (first,) in has.items()}

            refused = tools.reassign(cluster.bootstrap, TOPIC, moved, plan)
            assert "moving them is not built yet" in refused
            said = tools.reassign(cluster.bootstrap, TOPIC, grown, plan)
            assert f"Successfully started partition reassignments for {TOPIC}-0,{TOPIC}-1" in said
            wait_until(lambda: not client.wait_for(client.admin.partitions_in_change()), "the new replicas to join")
            verified, listed = tools.verify_reassignment(cluster.bootstrap, plan)
        for index in grown:
            assert f"Reassignment of partition {TOPIC}-{index} is completed." in verified
        assert "exit status" not in verified
        assert "No partition reassignments found." in listed
        assert [record.value for record in cluster.records(TOPIC)] == [b"a", b"b"]
