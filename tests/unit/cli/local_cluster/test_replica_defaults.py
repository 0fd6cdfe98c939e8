"""Which topics of a directory get more replicas when the cluster there has grown."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from barnabas.base.properties import render_properties
from barnabas.cli.local_cluster.cluster_directory import common_texts
from barnabas.cli.local_cluster.replica_defaults import (
    ReplicaDefaults,
    begin,
    defaults_of,
    keep_defaults,
    raise_replicas,
    raised_text,
    raising,
)
from barnabas.client.admin import Admin
from barnabas.client.blocking import BlockingClient
from barnabas.testing import ApiKey, Cluster, ErrorCode
from tests.support.kafka import wait_until

ONE, TWO, THREE = (ReplicaDefaults(number, number) for number in (1, 2, 3))


def defaults_with(brokers: int) -> ReplicaDefaults:
    return ReplicaDefaults.of(common_texts({}, None, "127.0.0.1:2181", brokers=brokers))


def written_by_an_earlier_version(directory: Path, texts: Mapping[str, str]) -> None:
    (directory / "broker-1").mkdir(parents=True)
    (directory / "broker-1" / "broker.properties").write_text(render_properties(texts))


def test_defaults_go_by_the_number_of_brokers() -> None:
    assert [defaults_with(number) for number in (1, 2, 3, 5)] == [ONE, TWO, THREE, THREE]


def test_new_directory_has_nothing_to_raise(tmp_path: Path) -> None:
    assert begin(tmp_path / "data", THREE, takes_in=False) == THREE
    assert defaults_of(tmp_path / "data") == THREE


def test_directory_of_a_single_broker_has_topics_with_one_replica(tmp_path: Path) -> None:
    assert begin(tmp_path, THREE, takes_in=True) == ONE
    assert begin(tmp_path, THREE, takes_in=False) == ONE, "it was killed before it had raised them"


@pytest.mark.parametrize("texts", [{}, {"offsets.topic.replication.factor": "1"}])
def test_directory_of_a_version_that_did_not_replicate_has_topics_with_one_replica(
    tmp_path: Path, texts: Mapping[str, str]
) -> None:
    written_by_an_earlier_version(tmp_path, texts)
    assert begin(tmp_path, THREE, takes_in=False) == ONE


def test_directory_without_the_file_says_it_by_its_brokers_properties(tmp_path: Path) -> None:
    written_by_an_earlier_version(tmp_path, TWO.texts())
    assert begin(tmp_path, THREE, takes_in=False) == TWO
    assert begin(tmp_path, TWO, takes_in=False) == TWO


def test_fewer_brokers_lower_what_the_next_topics_have(tmp_path: Path) -> None:
    keep_defaults(tmp_path, THREE)
    assert begin(tmp_path, TWO, takes_in=False) == TWO
    assert begin(tmp_path, THREE, takes_in=False) == TWO


def test_what_was_raised_is_told_in_one_line() -> None:
    assert raised_text(Counter({3: 4})) == "raised to 3 replicas: 4 topics"
    assert raised_text(Counter({3: 1, 2: 1})) == "raised to 2 replicas: 1 topic; raised to 3 replicas: 1 topic"
    assert raised_text(Counter()) is None


def test_topics_with_just_the_earlier_default_are_raised_and_others_are_left(tmp_path: Path) -> None:
    keep_defaults(tmp_path, ONE)
    with Cluster(brokers=3, settings={"offsets.topic.num.partitions": 4}) as cluster:
        cluster.create_topic("orders", partitions=6)
        cluster.create_topic("chosen", replicas=2)
        cluster.append("orders", [b"a", b"b"], partition=3)
        with BlockingClient(cluster.bootstrap) as client:

            def replicas_of(name: str) -> list[tuple[int, ...]]:
                return [one.replicas for topic in client.topics() if topic.name == name for one in topic.partitions]

            before = replicas_of("orders")
            work = raising(tmp_path, cluster.bootstrap, 3, ONE, THREE)
            assert asyncio.run(work()) == "raised to 3 replicas: 1 topic"
            assert defaults_of(tmp_path) == THREE
            after = replicas_of("orders")
            assert [one[:1] for one in after] == before
            assert all(sorted(one) == [1, 2, 3] for one in after)
            assert [len(one) for one in replicas_of("chosen")] == [2]
            wait_until(lambda: not client.wait_for(client.admin.partitions_in_change()), "the new replicas to join")
            again = client.wait_for(raise_replicas(Admin(client.cluster), 3, ONE, THREE))
            assert again == Counter()
        assert [record.value for record in cluster.records("orders")] == [b"a", b"b"]


def test_cluster_that_refuses_is_tried_again_at_the_next_start(tmp_path: Path) -> None:
    keep_defaults(tmp_path, ONE)
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("orders")
        cluster.controller.fail(ApiKey.ALTER_PARTITION_REASSIGNMENTS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        told = asyncio.run(raising(tmp_path, cluster.bootstrap, 2, ONE, TWO)())
        assert told is not None
        assert told.startswith("topics from before keep the replicas that they have, until the next start: ")
        assert defaults_of(tmp_path) == ONE
        assert asyncio.run(raising(tmp_path, cluster.bootstrap, 2, ONE, TWO)()) == "raised to 2 replicas: 1 topic"
    assert defaults_of(tmp_path) == TWO


def test_same_defaults_ask_nobody(tmp_path: Path) -> None:
    assert asyncio.run(raising(tmp_path, "127.0.0.1:1", 3, THREE, THREE)()) is None
