"""The nodes of a lost metadata file, made again from what log directories say."""

from collections.abc import Iterable
from random import Random
from uuid import UUID

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.metadata.rebuild import (
    KEEP_EVERYTHING,
    CannotRebuild,
    FoundLogs,
    FoundPartition,
    RebuiltMetadata,
    rebuild_metadata,
)
from barnabas.metadata.znodes import (
    CLUSTER_ID,
    PRODUCER_ID_BLOCK,
    ClusterId,
    PartitionState,
    ProducerIdBlock,
    TopicAssignment,
    decode_configs,
    topic_config_path,
)

ORDERS, OLD_ORDERS = UUID(int=0xA11), UUID(int=0xB22)
NOW_MS = 1_700_000_000_000


def partition(name: str, index: int, topic_id: UUID | None = ORDERS, epoch: int = 0, at: int = 5) -> FoundPartition:
    return FoundPartition(TopicPartition(name, index), topic_id, at, epoch)


def rebuilt(partitions: Iterable[FoundPartition], **options: object) -> RebuiltMetadata:
    known = options.pop("known_configs", {})
    found = FoundLogs("castle", 4, list(partitions), **options)  # type: ignore[arg-type]
    metadata = rebuild_metadata(found, known, Random(1), NOW_MS)  # type: ignore[arg-type]
    metadata.tree.check_invariants()
    return metadata


def data(metadata: RebuiltMetadata, path: str) -> bytes:
    node = metadata.tree.node(path)
    assert node is not None, path
    return node.data


def assignment(metadata: RebuiltMetadata, topic: str) -> TopicAssignment:
    return TopicAssignment.decode(topic, data(metadata, TopicAssignment.path_of(topic)))


def state(metadata: RebuiltMetadata, topic: str, index: int) -> PartitionState:
    path = PartitionState.path_of(topic, index)
    return PartitionState.decode(path, data(metadata, path))


def test_topic_has_its_id_partitions_and_the_next_leader_epochs() -> None:
    metadata = rebuilt([partition("orders", 1, epoch=7), partition("orders", 0, epoch=-1)])
    assert ClusterId.decode(data(metadata, CLUSTER_ID)) == "castle"
    topic = assignment(metadata, "orders")
    assert topic.topic_id == ORDERS
    assert [one.replicas for one in topic.partitions] == [(4,), (4,)]
    assert [state(metadata, "orders", index).leader_epoch for index in range(2)] == [0, 8]
    assert state(metadata, "orders", 1).isr == (4,)
    assert (metadata.missing, metadata.left_out, metadata.new_ids) == ([], [], [])


def test_topic_with_unknown_settings_keeps_its_records() -> None:
    metadata = rebuilt(
        [partition("orders", 0), partition("prices", 0, UUID(int=3)), partition("known", 0, UUID(int=4))],
        compacted=frozenset({"prices"}),
        known_configs={"known": {"retention.ms": "5"}},
    )
    configs = {}
    for topic in ("orders", "prices", "known"):
        path = topic_config_path(topic)
        configs[topic] = decode_configs(path, data(metadata, path))
    assert configs["orders"] == KEEP_EVERYTHING
    assert configs["prices"] == {"cleanup.policy": "compact", **KEEP_EVERYTHING}
    assert configs["known"] == {"retention.ms": "5"}
    assert metadata.guessed == ["orders", "prices"]


def test_directories_of_a_deleted_topic_of_the_same_name_are_left_out() -> None:
    left = [partition("orders", index, OLD_ORDERS, at=1) for index in (1, 2, 3)]
    metadata = rebuilt([*left, partition("orders", 0, at=2)])
    assert assignment(metadata, "orders").topic_id == ORDERS
    assert metadata.topics[0].partition_count == 1
    assert metadata.left_out == [one.name for one in left]


def test_partition_without_an_id_gets_that_of_its_topic_or_a_new_one() -> None:
    metadata = rebuilt([partition("orders", 0), partition("orders", 1, None, at=0), partition("lost", 0, None, at=0)])
    assert len(assignment(metadata, "orders").partitions) == 2
    assert assignment(metadata, "lost").topic_id not in (ORDERS, UUID(int=0))
    assert metadata.new_ids == ["lost"]


def test_missing_partitions_are_named_and_can_be_created() -> None:
    metadata = rebuilt([partition("orders", 2, epoch=3)])
    assert metadata.missing == [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    assert [state(metadata, "orders", index).leader_epoch for index in range(3)] == [0, 0, 4]


def test_number_that_no_topic_has_had_is_refused_without_making_its_partitions() -> None:
    with pytest.raises(CannotRebuild, match="orders-2147483647"):
        rebuilt([partition("orders", 2**31 - 1)])


@pytest.mark.parametrize("seen", [-1, 4711, NOW_MS + 12_345])
def test_producer_ids_go_on_above_all_that_were_given_out(seen: int) -> None:
    metadata = rebuilt([], producer_id_max=seen)
    block = ProducerIdBlock.decode(data(metadata, PRODUCER_ID_BLOCK))
    assert block.last + 1 > max(seen, NOW_MS)
    assert block.last - block.first == 999
    assert block.first % 1000 == 0


def test_positions_go_on_above_those_of_the_lost_store() -> None:
    assert rebuilt([partition("orders", 0)]).tree.zxid == NOW_MS
