"""Which partitions should be led by their preferred replicas again."""

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import ZERO_UUID
from barnabas.controller.balance import unbalanced_partitions
from barnabas.metadata.image import BrokerChanged, ClusterImage, Partition, RegisteredBroker, Topic, TopicChanged

BROKERS = [BrokerChanged(RegisteredBroker(one, 10 * one, ())) for one in (1, 2)]


def image(*leaders: tuple[int, int]) -> ClusterImage:
    """Of a topic whose partitions have a preferred replica and a leader."""
    partitions = [Partition(index, (first, 9), leader=leader) for index, (first, leader) in enumerate(leaders)]
    return ClusterImage().apply([*BROKERS, TopicChanged(Topic("orders", ZERO_UUID, tuple(partitions)))])


@pytest.mark.parametrize(("percent", "expected"), [(0, [1]), (24, [1]), (25, []), (100, [])])
def test_broker_leads_again_when_more_than_allowed_are_led_by_others(percent: int, expected: list[int]) -> None:
    known = image((1, 1), (1, 2), (1, 1), (1, 1), (2, 2))
    assert list(unbalanced_partitions(known, percent)) == [TopicPartition("orders", index) for index in expected]


def test_broker_that_is_not_registered_is_not_waited_for() -> None:
    assert list(unbalanced_partitions(image((3, 1), (1, 1)), 0)) == []


def test_partition_without_replicas_has_no_preferred_one() -> None:
    lost = Topic("orders", ZERO_UUID, (Partition(0, ()),))
    assert list(unbalanced_partitions(ClusterImage().apply([*BROKERS, TopicChanged(lost)]), 0)) == []
