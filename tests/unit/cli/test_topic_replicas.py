"""What `barnabas topic` and `barnabas cluster` say about replicas, on three brokers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.testing import Cluster
from barnabas.wire.errors import ErrorCode
from tests.support.command_line import run
from tests.support.kafka import wait_until
from tests.unit.testing.cluster_requests import create

SETTINGS = {"default.replication.factor": 3, "min.insync.replicas": 2}
ONE_REPLICA = "one replica in a cluster of 3 brokers: records are lost with the disk of their broker"
MINIMUM = (
    "min.insync.replicas=1 with 3 replicas: a record that acks=all confirmed may exist on one disk only; set it to 2"
)
UNCLEAN = "unclean.leader.election.enable=true: a failover may drop confirmed records"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, SETTINGS) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "options", "warnings"),
    [
        ("safe", (), []),
        ("single", ("-r", "1"), [ONE_REPLICA]),
        ("least", ("--set", "min.insync.replicas=1"), [MINIMUM]),
        ("unclean", ("--set", "unclean.leader.election.enable=true"), [UNCLEAN]),
    ],
)
def test_unsafe_choices_are_warned_of_when_a_topic_is_created_and_described(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], name: str, options: tuple[str, ...], warnings: list[str]
) -> None:
    status, out, err = run(capsys, "topic", "create", name, *options, "-b", cluster.bootstrap)

    lines = [f"topic '{name}': {warning}" for warning in warnings]
    assert (status, out, err.splitlines()) == (0, f"created topic '{name}' with 1 partition\n", lines)
    status, out, err = run(capsys, "topic", "describe", name, "-b", cluster.bootstrap)
    assert (status, err.splitlines()) == (0, lines)
    assert out.splitlines()[0].endswith(f", minimum in sync {1 if name == 'least' else 2}")
    assert described(cluster, capsys, name)["warnings"] == warnings


def test_topic_without_a_factor_has_the_brokers_default(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "topic", "create", "by-default", "--json", "-b", cluster.bootstrap)[1]

    assert json.loads(out)["replication_factor"] == 3
    [partition] = described(cluster, capsys, "by-default")["partitions"]
    assert sorted(partition["replicas"]) == sorted(partition["in_sync"]) == [1, 2, 3]
    assert partition["eligible"] == []


def test_replicas_that_left_are_shown_with_those_that_may_still_lead(capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(3, SETTINGS) as cluster:
        assert create(cluster[1], "orders", 1, 3) is ErrorCode.NONE
        leader = cluster.leader_of("orders")
        assert leader is not None
        followers = [broker for broker in cluster if broker is not leader]
        followers[0].kill()
        wait_until(lambda: len(partition_of(cluster, capsys)["in_sync"]) == 2, "the first to leave")
        view = cluster_view(cluster, capsys)
        assert (view["under_replicated"], view["at_minimum"], view["below_minimum"]) == ([ORDERS], [ORDERS], [])

        followers[1].kill()
        wait_until(lambda: partition_of(cluster, capsys)["in_sync"] == [leader.id], "the second to leave")

        assert partition_of(cluster, capsys)["eligible"] == [followers[1].id]
        out = run(capsys, "topic", "describe", "orders", "-b", cluster.bootstrap)[1]
        assert out.splitlines()[-2].split()[:6] == ["partition", "leader", "replicas", "in", "sync", "eligible"]
        view = cluster_view(cluster, capsys)
        assert (view["under_replicated"], view["at_minimum"], view["below_minimum"]) == ([ORDERS], [], [ORDERS])
        err = run(capsys, "cluster", "describe", "-b", cluster.bootstrap)[2]
        assert "1 partition below the minimum in sync: orders-0\n" in err


ORDERS = {"topic": "orders", "partition": 0}


def described(cluster: Cluster, capsys: pytest.CaptureFixture[str], name: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(run(capsys, "topic", "describe", name, "--json", "-b", cluster.bootstrap)[1])
    return told


def partition_of(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    [partition] = described(cluster, capsys, "orders")["partitions"]
    return dict(partition)


def cluster_view(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(run(capsys, "cluster", "describe", "--json", "-b", cluster.bootstrap)[1])
    return told
