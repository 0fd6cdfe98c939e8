"""Topics and configs as writes to the store, and how they come back through the watcher."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from unittest.mock import patch

import pytest

from barnabas.base.uuid import parse_uuid
from barnabas.controller import topics as topics_module
from barnabas.controller.configs import update_broker_configs, update_topic_configs
from barnabas.controller.controllership import claim_controller
from barnabas.controller.placement import assigned_replicas, place_more, place_replicas
from barnabas.controller.topics import TopicWriter
from barnabas.metadata.deletions import DeletedTopic, Deletions
from barnabas.metadata.store import Create
from barnabas.metadata.znodes import PERSISTENT_PATHS, PartitionState, ReplicaAssignment, TopicAssignment
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.metadata_cluster import MetadataCluster, run_in_cluster


async def error_of(attempt: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await attempt
    return caught.value.code


# Placement


def test_placement_goes_round_and_shifts_followers() -> None:
    placed = place_replicas([0, 1, 2, 3, 4], 7, 3, start=0, shift=0)
    assert placed == [(0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1), (0, 2, 3), (1, 3, 4)]
    assert place_replicas([0, 1, 2, 3, 4], 2, 3, start=0, shift=0, first_partition=5) == placed[5:]


def test_further_replicas_go_round_the_other_brokers_behind_those_that_are_there() -> None:
    racks = dict.fromkeys((1, 2, 3))
    assert place_more([(1,)] * 4, racks, 3, {1: 4}) == [(1, 2, 3), (1, 3, 2), (1, 2, 3), (1, 3, 2)]
    assert place_more([(1,), (2, 3), (3, 1, 2)], racks, 2, {}) == [(1, 2), (2, 3), (3, 1, 2)]


def test_further_replicas_are_spread_evenly_whatever_is_there() -> None:
    racks = dict.fromkeys(range(1, 6))
    before = [(1,)] * 10 + [(2, 1)] * 5
    held = Counter(one for replicas in before for one in replicas)
    grown = place_more(before, racks, 3, held)
    assert all(after[: len(had)] == had and len(set(after)) == 3 for had, after in zip(before, grown, strict=True))
    load = Counter(one for replicas in grown for one in replicas)
    assert max(load[one] for one in (2, 3, 4, 5)) - min(load[one] for one in (2, 3, 4, 5)) <= 2


def test_further_replicas_go_to_racks_that_the_partition_does_not_have() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    for replicas in place_more([(1,), (3,), (5,), (9,)], racks, 3, {}):
        assert len({racks.get(one) for one in replicas}) == 3


def test_further_replicas_need_as_many_brokers() -> None:
    with pytest.raises(KafkaError) as caught:
        place_more([(1,)], {1: None, 2: None}, 3, {})
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_placement_spreads_replicas_evenly() -> None:
    for count in range(1, 7):
        for factor in range(1, count + 1):
            placed = place_replicas(list(range(10, 10 + count)), 3 * count, factor, start=2, shift=1)
            assert all(len(set(replicas)) == factor for replicas in placed)
            assert set(Counter(replicas[0] for replicas in placed).values()) == {3}
            assert set(Counter(broker for replicas in placed for broker in replicas).values()) == {3 * factor}


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_placement_is_refused(partitions: int, factor: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        place_replicas([1, 2], partitions, factor, start=0, shift=0)
    assert caught.value.code is code


@pytest.mark.parametrize(
    "assignments", [{}, {1: [1]}, {0: [1], 2: [1]}, {0: []}, {0: [1, 1]}, {0: [9]}, {0: [1, 2], 1: [1]}]
)
def test_wrong_assignment_is_refused(assignments: dict[int, list[int]]) -> None:
    with pytest.raises(KafkaError) as caught:
        assigned_replicas(assignments, [1, 2])
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("count", [10_001, 2**31 - 1])
def test_more_partitions_than_can_be_placed_at_once_are_refused(count: int) -> None:
    with pytest.raises(KafkaError) as caught:
        place_replicas([1, 2], count, 1, start=0, shift=0)
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS


def test_assignment_to_more_brokers_than_there_are_is_refused_without_naming_them_all() -> None:
    with pytest.raises(KafkaError) as caught:
        assigned_replicas({0: range(100_000)}, [1, 2])
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(caught.value.message) < 100


# Topics


def test_topic_that_the_image_does_not_have_yet_grows_by_no_more_than_the_limit() -> None:
    """The topic is in the store already, and its watch has not been followed yet."""

    async def scenario(cluster: MetadataCluster) -> None:
        before = cluster.watcher.image
        await cluster.create("t", 3)
        with pytest.raises(KafkaError) as caught:
            await cluster.writer.add_partitions(before, "t", 2**31 - 1)
        assert caught.value.code is ErrorCode.INVALID_PARTITIONS
        assert len((await cluster.writer.add_partitions(before, "t", 4)).partitions) == 4

    run_in_cluster(scenario)


def test_name_that_counts_as_the_same_is_looked_for_in_the_image_that_is_given() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        image = cluster.watcher.image
        cluster.writer.plan(image, "a.b", 1, 1)
        await cluster.create("a.b")
        with pytest.raises(KafkaError, match="collides with"):
            cluster.writer.plan(cluster.watcher.image, "a_b", 1, 1)

    run_in_cluster(scenario)


def test_created_topic_is_seen_with_leaders_and_configs() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("t", 4, 2, retention="5")
        image = cluster.watcher.image
        topic = image.topics["t"]
        assert image.topic_by_id(topic.id) is topic
        assert len(topic.partitions) == 4
        for partition in topic.partitions:
            assert len(partition.replicas) == 2
            assert (partition.leader, partition.isr) == (partition.replicas[0], partition.replicas)
            assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert image.configs_of_topic("t") == {"retention": "5"}
        assert image.partition("t", 4) is None
        assert image.partition("t", -1) is None

    run_in_cluster(scenario, (1, 2, 3))


def test_assigned_topic_keeps_its_replicas() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        plan = cluster.writer.plan_assigned(cluster.watcher.image, "t", {1: [3, 1], 0: [2, 3]})
        await cluster.writer.create(plan)
        image = await cluster.watcher.wait_for(lambda image: "t" in image.topics)
        assert [one.replicas for one in image.topics["t"].partitions] == [(2, 3), (3, 1)]
        assert [one.leader for one in image.topics["t"].partitions] == [2, 3]

    run_in_cluster(scenario, (1, 2, 3))


def test_wrong_names_are_refused() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("a.b")
        image = cluster.watcher.image
        for name, code in {
            "": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "a.b": ErrorCode.TOPIC_ALREADY_EXISTS,
        }.items():
            with pytest.raises(KafkaError) as caught:
                cluster.writer.plan(image, name, 1, 1)
            assert caught.value.code is code

    run_in_cluster(scenario)


def test_racing_creations_let_one_win() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        plans = [cluster.writer.plan(cluster.watcher.image, "t", count, 1) for count in (1, 2, 3)]
        outcomes = await asyncio.gather(*map(cluster.writer.create, plans), return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, KafkaError)]
        assert [error.code for error in refused] == [ErrorCode.TOPIC_ALREADY_EXISTS] * 2
        image = await cluster.watcher.wait_for(lambda image: "t" in image.topics)
        winner = plans[outcomes.index(None)].assignment
        assert image.topics["t"].id == winner.topic_id
        assert len(image.topics["t"].partitions) == len(winner.partitions)

    run_in_cluster(scenario)


def test_deleted_topic_leaves_nothing_behind_but_its_id() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("kept", 2)
        before = await cluster.session.get_many(PERSISTENT_PATHS)
        await cluster.create("t", 3, retention="5")
        topic_id = cluster.watcher.image.topics["t"].id
        other_id = parse_uuid("mV6sF7SYS-axiQvnRkBn3Q")
        assert await error_of(cluster.writer.delete("t", other_id)) is ErrorCode.UNKNOWN_TOPIC_ID
        await cluster.writer.delete("t", topic_id)
        image = await cluster.watcher.wait_for(lambda image: "t" not in image.topics)
        assert image.topic_by_id(topic_id) is None
        assert image.configs_of_topic("t") == {}
        deletions = Deletions(cluster.session, 1)
        assert await deletions.load() == [DeletedTopic("t", topic_id, (1,))]
        assert await deletions.recorded([topic_id, other_id]) == {topic_id}
        await cluster.session.delete(DeletedTopic.path_of(topic_id))
        after = await cluster.session.get_many(PERSISTENT_PATHS)
        assert [one and one.stat.children_count for one in after] == [one and one.stat.children_count for one in before]
        assert await error_of(cluster.writer.delete("t")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await cluster.create("t", 1)
        assert cluster.watcher.image.topics["t"].id != topic_id

    run_in_cluster(scenario)


def test_partitions_are_added_where_placing_began() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("t", 3, 2)
        before = cluster.watcher.image.topics["t"]
        for count, assignments, code in (
            (3, None, ErrorCode.INVALID_PARTITIONS),
            (2, None, ErrorCode.INVALID_PARTITIONS),
            (5, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (4, [[1, 7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ):
            attempt = cluster.writer.add_partitions(cluster.watcher.image, "t", count, assignments)
            assert await error_of(attempt) is code
        planned = await cluster.writer.add_partitions(cluster.watcher.image, "t", 5, validate_only=True)
        assert len(planned.partitions) == 5
        await cluster.settle()
        assert cluster.watcher.image.topics["t"] is before
        await cluster.writer.add_partitions(cluster.watcher.image, "t", 6)
        await cluster.writer.add_partitions(cluster.watcher.image, "t", 7, [[2, 1]])
        image = await cluster.watcher.wait_for(lambda image: len(image.topics["t"].partitions) == 7)
        after = image.topics["t"]
        assert after.id == before.id
        assert after.partitions[:3] == before.partitions
        assert [one.leader for one in after.partitions[3:6]] == [one.leader for one in before.partitions]
        assert after.partitions[6].replicas == (2, 1)
        assert all(one.leader == one.replicas[0] for one in after.partitions)

    run_in_cluster(scenario, (1, 2, 3))


def test_topic_whose_first_partition_was_lost_can_grow() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("t", 2)
        [node] = await cluster.session.get_many([TopicAssignment.path_of("t")])
        assert node is not None
        whole = TopicAssignment.decode("t", node.data)
        lost = replace(whole, partitions=(ReplicaAssignment(()), whole.partitions[1]))
        await cluster.session.set(lost.path, lost.encode())
        grown = await cluster.writer.add_partitions(cluster.watcher.image, "t", 3)
        assert [len(one.replicas) for one in grown.partitions] == [0, 1, 1]

    run_in_cluster(scenario, (1, 2))


def test_racing_growth_and_deletion_leave_a_whole_topic_or_none() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("t", 1)
        image = cluster.watcher.image
        await asyncio.gather(
            cluster.writer.add_partitions(image, "t", 3),
            cluster.writer.delete("t"),
            cluster.writer.add_partitions(image, "t", 2),
            return_exceptions=True,
        )
        await cluster.settle()
        assert "t" not in cluster.watcher.image.topics
        assert await cluster.session.exists("/brokers/topics/t") is None

    run_in_cluster(scenario)


def test_topic_of_many_partitions_is_made_and_deleted_in_parts() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        with patch.object(topics_module, "_PARTITIONS_TOGETHER_MAX", 3):
            await cluster.create("t", 10)
            image = await cluster.watcher.wait_for(lambda image: image.topics["t"].partitions[-1].leader == 1)
            assert all(one.leader == 1 for one in image.topics["t"].partitions)
            await cluster.writer.delete("t")
        await cluster.watcher.wait_for(lambda image: "t" not in image.topics)
        assert await cluster.session.children("/admin/delete_topics") == []
        assert await cluster.session.exists("/brokers/topics/t") is None

    run_in_cluster(scenario)


def test_interrupted_creation_and_deletion_are_finished() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("half", 3)
        await cluster.create("dying", 2)
        await cluster.session.delete(PartitionState.path_of("half", 2))
        await cluster.session.delete("/brokers/topics/half/partitions/2")
        await cluster.session.delete(PartitionState.path_of("half", 1))
        await cluster.session.multi([Create("/admin/delete_topics/dying"), Create("/admin/delete_topics/gone")])
        image = await cluster.watcher.wait_for(lambda image: "dying" not in image.topics)
        assert [one.leader for one in image.topics["half"].partitions] == [1, -1, -1]
        await cluster.writer.finish_interrupted(image)
        await cluster.watcher.wait_for(lambda image: image.topics["half"].partitions[2].leader == 1)
        await cluster.settle()
        assert [one.leader for one in cluster.watcher.image.topics["half"].partitions] == [1, 1, 1]
        assert await cluster.session.children("/admin/delete_topics") == []
        assert await cluster.session.children("/brokers/topics") == ["half"]

    run_in_cluster(scenario)


def test_deposed_controller_writes_nothing() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("t")
        plan = cluster.writer.plan(cluster.watcher.image, "other", 1, 1)
        assert await claim_controller(cluster.session, 2, 0) is None
        await cluster.session.delete("/controller")
        successor = await claim_controller(cluster.session, 2, 0)
        assert successor is not None
        assert successor.epoch == cluster.controllership.epoch + 1
        for attempt in (
            cluster.writer.create(plan),
            cluster.writer.delete("t"),
            cluster.writer.add_partitions(cluster.watcher.image, "t", 2),
            update_topic_configs(cluster.controllership, "t", lambda _configs: {"a": "1"}),
        ):
            assert await error_of(attempt) is ErrorCode.NOT_CONTROLLER
        await TopicWriter(successor, random.Random(2)).create(plan)
        image = await cluster.watcher.wait_for(lambda image: "other" in image.topics)
        assert image.controller_id == 2

    run_in_cluster(scenario)


# Configs


def test_config_updates_that_race_are_all_kept() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("t", a="0")
        owner = cluster.controllership

        def setting(name: str) -> Awaitable[None]:
            return update_topic_configs(owner, "t", lambda configs: {**configs, name: "1"})

        await asyncio.gather(*(setting(name) for name in "bcdef"))
        await update_topic_configs(owner, "t", lambda configs: {k: v for k, v in configs.items() if k != "a"})
        await update_broker_configs(owner, None, lambda _configs: {"x": "1"})
        await update_broker_configs(owner, 1, lambda _configs: {"y": "2"})
        await cluster.settle()
        image = cluster.watcher.image
        assert image.configs_of_topic("t") == dict.fromkeys("bcdef", "1")
        assert (image.configs_of_broker(None), image.configs_of_broker(1)) == ({"x": "1"}, {"y": "2"})
        await update_broker_configs(owner, 1, lambda _configs: {})
        await cluster.settle()
        assert cluster.watcher.image.configs_of_broker(1) == {}

    run_in_cluster(scenario)


def test_configs_of_a_missing_topic_are_refused() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        attempt = update_topic_configs(cluster.controllership, "t", lambda _configs: {"a": "1"})
        assert await error_of(attempt) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await cluster.session.children("/config/topics") == []

    run_in_cluster(scenario)
