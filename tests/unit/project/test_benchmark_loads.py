"""The loads of the benchmarks of replicated clusters do what their figures say."""

import io
import sys
from collections.abc import Callable

import pytest
from benchmarks.broker_load import Outcome
from benchmarks.replication_load import Asked, frames, librdkafka, paced

from barnabas.testing import Cluster

PARTITIONS = 3


@pytest.fixture
def asked(barnabas_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """500 records in half a second, on a topic with a leader on each broker; it begins at once."""
    barnabas_cluster.create_topic("load", partitions=PARTITIONS, replicas=3)
    barnabas_cluster.wait_until_in_sync(60)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    ports = {broker.id: broker.port for broker in barnabas_cluster}
    return Asked(ports, "load", PARTITIONS, seconds=0.5, megabytes=5, rate=1000)


def count_records(cluster: Cluster) -> int:
    return len(cluster.records("load"))


def test_paced_records_arrive_at_the_consumer_each_once(asked: Asked, barnabas_cluster: Cluster) -> None:
    outcome = paced(asked)
    first = 2 * PARTITIONS  # a batch of two records to each partition, before it begins
    assert outcome.requests == pytest.approx(500, abs=2)
    assert count_records(barnabas_cluster) == outcome.requests + first
    assert 0 < outcome.p50_us <= outcome.p99_us


@pytest.mark.parametrize("load", [frames, librdkafka])
def test_no_record_is_counted_that_was_not_acknowledged(
    asked: Asked, barnabas_cluster: Cluster, load: Callable[[Asked], Outcome]
) -> None:
    outcome = load(asked)
    assert 0 < outcome.requests <= count_records(barnabas_cluster)
