"""What is written into a store that has lost topics, from what the logs of several brokers say."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import uuid_text
from barnabas.metadata.cluster_rebuild import (
    ClusterRebuild,
    PresentCluster,
    PresentTopic,
    RebuildOptions,
    plan_cluster_rebuild,
)
from barnabas.metadata.rebuild import CannotRebuild, FoundLogs, FoundPartition
from barnabas.metadata.store import Create, SetData
from barnabas.metadata.znodes import (
    BROKER_SEQUENCE,
    PRODUCER_ID_BLOCK,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    topic_config_path,
)

ORDERS, OTHER = UUID(int=0xA11), UUID(int=0xB22)
NOW_MS = 1_700_000_000_000


def log(name: str, index: int, topic_id: UUID | None = ORDERS, epoch: int = 0, aside: str = "") -> FoundPartition:
    return FoundPartition(TopicPartition(name, index), topic_id, 5, epoch, f"/d/{name}-{index}{aside}")


def broker(node_id: int, *logs: FoundPartition, strays: Iterable[FoundPartition] = (), **facts: Any) -> FoundLogs:
    return FoundLogs("castle", node_id, logs, strays=list(strays), **facts)


def planned(*brokers: FoundLogs, present: PresentCluster | None = None, **options: Any) -> ClusterRebuild:
    return plan_cluster_rebuild(brokers, present or PresentCluster(), RebuildOptions(**options), Random(1), NOW_MS)


def written(plan: ClusterRebuild) -> dict[str, bytes]:
    nodes = {}
    for operation in plan.operations:
        assert isinstance(operation, Create | SetData)
        nodes[operation.path] = operation.data
    return nodes


def assignment(plan: ClusterRebuild, topic: str = "orders") -> TopicAssignment:
    return TopicAssignment.decode(topic, written(plan)[TopicAssignment.path_of(topic)])


def states(plan: ClusterRebuild, topic: str = "orders") -> dict[int, PartitionState]:
    nodes = written(plan)
    paths = {index: PartitionState.path_of(topic, index) for index in range(20)}
    return {index: PartitionState.decode(path, nodes[path]) for index, path in paths.items() if path in nodes}


def has(replicas: Iterable[tuple[int, ...]], states: Mapping[int, int], topic_id: UUID = ORDERS) -> PresentCluster:
    """A store with the topic `orders`: its replicas, and the leader epochs of those states that are there."""
    assigned = TopicAssignment("orders", topic_id, tuple(map(ReplicaAssignment, replicas)))
    made = {
        index: (PartitionState(*_led(assigned.partitions[index].replicas, epoch), 3, isr_epochs=()), 7)
        for index, epoch in states.items()
    }
    return PresentCluster("castle", {"orders": PresentTopic(assigned, 4, made)}, frozenset({"orders"}))


def _led(replicas: tuple[int, ...], epoch: int) -> tuple[int, int, tuple[int, ...]]:
    return (replicas[0] if replicas else -1), epoch, replicas


def test_partitions_of_several_brokers_make_one_topic() -> None:
    plan = planned(broker(1, log("orders", 0, epoch=7), log("orders", 2)), broker(2, log("orders", 1, epoch=-1)))

    assert plan.sets_cluster_id
    assert assignment(plan).topic_id == ORDERS
    assert [one.replicas for one in assignment(plan).partitions] == [(1,), (2,), (1,)]
    assert {index: (one.leader, one.leader_epoch) for index, one in states(plan).items()} == {
        0: (1, 8),
        1: (2, 0),
        2: (1, 1),
    }
    assert (plan.missing, plan.guessed, plan.topics[0].found) == ([], ["orders"], 3)


def test_partitions_on_machines_that_come_later_are_offline_until_then() -> None:
    first = planned(broker(1, log("orders", 0), log("orders", 3, epoch=4)))

    assert [one.replicas for one in assignment(first).partitions] == [(1,), (), (), (1,)]
    assert (states(first)[1].leader, states(first)[1].isr) == (-1, ())
    assert first.missing == [TopicPartition("orders", 1), TopicPartition("orders", 2)]

    present = has([(1,), (), (), (1,)], {0: 1, 1: 0, 2: 0, 3: 5})
    second = planned(broker(2, log("orders", 1, epoch=6), log("orders", 4)), present=present)
    assert [one.replicas for one in assignment(second).partitions] == [(1,), (2,), (), (1,), (2,)]
    assert {index: (one.leader, one.leader_epoch) for index, one in states(second).items()} == {1: (2, 7), 4: (2, 1)}
    assert second.missing == [TopicPartition("orders", 2)]
    assert (second.topics[0].is_new, second.topics[0].added, second.guessed) == (False, 2, [])


def test_missing_partitions_are_created_empty_when_that_is_allowed() -> None:
    present = has([(1,), (), (), (1,)], {0: 1, 1: 0, 2: 0, 3: 5})
    plan = planned(broker(1), broker(2), present=present, allow_missing=True)

    assert [one.replicas for one in assignment(plan).partitions] == [(1,), (2,), (1,), (1,)]
    assert (plan.missing, plan.emptied) == ([], [TopicPartition("orders", 1), TopicPartition("orders", 2)])


def test_what_the_store_has_is_left_as_it_is() -> None:
    plan = planned(broker(1, log("orders", 0, epoch=5)), present=has([(1,), (2,)], {0: 5, 1: 9}))

    assert not plan.sets_cluster_id
    assert [path for path in written(plan) if "orders" in path] == []
    assert plan.topics[0].found == 1


def test_leader_epoch_of_a_store_that_was_rolled_back_is_raised_above_the_log() -> None:
    plan = planned(broker(1, log("orders", 0, epoch=9)), present=has([(1,)], {0: 5}))

    [(path, data)] = [(path, data) for path, data in written(plan).items() if "orders" in path]
    raised = PartitionState.decode(path, data)
    assert (raised.leader, raised.leader_epoch, raised.isr) == (1, 10, (1,))
    assert plan.topics[0].raised == 1


def test_state_that_an_interrupted_run_did_not_write_is_written() -> None:
    plan = planned(broker(1, log("orders", 0, epoch=2)), present=has([(1,), ()], {}))

    assert {index: one.leader_epoch for index, one in states(plan).items()} == {0: 3, 1: 0}
    assert TopicAssignment.path_of("orders") not in written(plan)


def test_reassignment_under_way_is_kept_when_partitions_are_added() -> None:
    moving = TopicAssignment("orders", ORDERS, (ReplicaAssignment((1, 2), adding=(2,)),))
    present = PresentCluster("castle", {"orders": PresentTopic(moving, 4, {0: (PartitionState(1, 5, (1,), 3), 7)})})
    plan = planned(broker(2, log("orders", 1)), present=present)

    assert assignment(plan).partitions == (ReplicaAssignment((1, 2), adding=(2,)), ReplicaAssignment((2,)))


def test_topic_with_two_ids_needs_a_choice() -> None:
    brokers = broker(1, log("orders", 0)), broker(2, log("orders", 1, OTHER), log("orders", 2, OTHER))
    with pytest.raises(CannotRebuild, match=rf"several ids: .* choose it with --topic-id orders={uuid_text(ORDERS)}"):
        planned(*brokers)
    plan = planned(*brokers, chosen_ids={"orders": OTHER})
    assert assignment(plan).topic_id == OTHER
    assert [one.replicas for one in assignment(plan).partitions] == [(), (2,), (2,)]
    assert plan.left_out == ["/d/orders-0"]


def test_topic_with_another_id_than_the_stores_needs_the_stores() -> None:
    present = has([(1,)], {0: 5})
    with pytest.raises(CannotRebuild, match="in the metadata store"):
        planned(broker(2, log("orders", 1, OTHER)), present=present)
    with pytest.raises(CannotRebuild, match="cannot be chosen"):
        planned(broker(2, log("orders", 1, OTHER)), present=present, chosen_ids={"orders": OTHER})
    plan = planned(broker(2, log("orders", 1, OTHER)), present=present, chosen_ids={"orders": ORDERS})
    assert plan.left_out == ["/d/orders-1"]
    assert [path for path in written(plan) if "orders" in path] == []


@pytest.mark.parametrize(
    ("chosen", "reason"), [({"orders": OTHER}, "no log of topic orders has"), ({"typo": ORDERS}, "no log was found")]
)
def test_choice_that_nobody_has_is_refused(chosen: dict[str, UUID], reason: str) -> None:
    with pytest.raises(CannotRebuild, match=reason):
        planned(broker(1, log("orders", 0)), chosen_ids=chosen)


def test_partition_on_several_brokers_is_led_by_whoever_has_most() -> None:
    """Which the controller finds out: the state says that nobody is known to be in sync."""
    logs = [[log("orders", 0, epoch=3), log("orders", 1)], [log("orders", 0, epoch=5), log("orders", 1)]]
    plan = planned(*(broker(number, *ones) for number, ones in enumerate(logs, 1)))
    assert [one.replicas for one in assignment(plan).partitions] == [(1, 2), (2, 1)]
    state = states(plan)[0]
    assert (state.leader, state.isr, state.elr, state.leader_epoch) == (-1, (), (), 6)


def test_replica_on_a_machine_that_comes_later_is_added_while_nobody_has_led() -> None:
    present = has([(1,)], {0: 5})
    topic = present.topics["orders"]
    state = PartitionState(1, 5, (1,), controller_epoch=0)
    untouched = replace(present, topics={"orders": replace(topic, states={0: (state, 0)})})
    plan = planned(broker(2, log("orders", 0, epoch=7)), present=untouched)
    assert [one.replicas for one in assignment(plan).partitions] == [(1, 2)]
    assert (states(plan)[0].leader, states(plan)[0].isr, states(plan)[0].leader_epoch) == (-1, (), 8)
    with pytest.raises(CannotRebuild, match="the metadata store has it on broker 1, and it was led there since"):
        planned(broker(2, log("orders", 0)), present=present)


def test_two_brokers_with_one_id_are_refused() -> None:
    with pytest.raises(CannotRebuild, match="two of the brokers have the id 1"):
        planned(broker(1), broker(1))


def test_stray_replicas_come_back_together() -> None:
    plan = planned(*(broker(one, strays=[log("orders", 0, aside=".a-stray")]) for one in (1, 2)))
    assert [one.replicas for one in assignment(plan).partitions] == [(1, 2)]
    assert len(plan.revived) == 2


def test_partition_without_an_id_belongs_to_its_topic_or_gets_a_new_id() -> None:
    plan = planned(broker(1, log("orders", 0)), broker(2, log("orders", 1, None), log("lost", 0, None)))

    assert [one.replicas for one in assignment(plan).partitions] == [(1,), (2,)]
    assert plan.new_ids == ["lost"]
    assert assignment(plan, "lost").topic_id not in (ORDERS, OTHER)


def test_stray_logs_come_back_where_nothing_contradicts() -> None:
    strays = [
        log("orders", 1, aside=".a-stray"),  # of the topic that is there
        log("orders", 0, aside=".b-stray"),  # its place is taken
        log("orders", 2, OTHER, aside=".c-stray"),  # of an earlier topic
        log("orders", 3, None, aside=".d-stray"),
        log("gone", 0, OTHER, epoch=2, aside=".e-stray"),  # nobody else knows this topic
        log("two", 0, ORDERS, aside=".f-stray"),
        log("two", 1, OTHER, aside=".g-stray"),
    ]
    plan = planned(broker(1, log("orders", 0), strays=strays))

    assert plan.revived == ["/d/gone-0.e-stray", "/d/orders-1.a-stray"]
    assert sorted(plan.strays) == [
        *(f"/d/orders-{rest}-stray" for rest in ("0.b", "2.c", "3.d")),
        *(f"/d/two-{rest}-stray" for rest in ("0.f", "1.g")),
    ]
    assert len(assignment(plan).partitions) == 2
    assert states(plan, "gone")[0].leader_epoch == 3
    assert TopicAssignment.path_of("two") not in written(plan)


def test_stray_log_of_a_partition_that_another_broker_has_stays_stray() -> None:
    plan = planned(broker(2, strays=[log("orders", 0, aside=".a-stray")]), present=has([(1,)], {0: 5}))
    assert (plan.revived, plan.strays) == ([], ["/d/orders-0.a-stray"])


def test_deleted_topics_do_not_come_back() -> None:
    present = PresentCluster("castle", deleted_ids=frozenset({ORDERS}))
    plan = planned(broker(1, log("orders", 0), strays=[log("orders", 1, aside=".a-stray")]), present=present)

    assert plan.deleted == ["/d/orders-0", "/d/orders-1.a-stray"]
    assert plan.topics == []


def test_settings_that_are_known_or_still_there_are_not_guessed() -> None:
    logs = [log("orders", 0), log("kept", 0, UUID(int=3)), log("known", 0, UUID(int=4)), log("dense", 0, UUID(int=5))]
    plan = planned(
        broker(1, *logs),
        broker(2, compacted=frozenset({"dense"})),
        present=PresentCluster(configured=frozenset({"kept"})),
        known_configs={"known": {}},
    )

    nodes = written(plan)
    assert plan.guessed == ["dense", "orders"]
    assert topic_config_path("kept") not in nodes
    assert b'"config":{}' in nodes[topic_config_path("known")]
    assert b"compact" in nodes[topic_config_path("dense")]


@pytest.mark.parametrize(("last", "seen", "is_raised"), [(None, -1, True), (5999, 4711, False), (3999, 4711, True)])
def test_producer_ids_go_on_above_all_that_were_given_out(last: int | None, seen: int, is_raised: bool) -> None:
    block = None if last is None else ProducerIdBlock(1, last - 999, last)
    plan = planned(broker(1), broker(2, producer_id_max=seen), present=PresentCluster(producer_ids=block))

    data = written(plan).get(PRODUCER_ID_BLOCK)
    assert (data is not None) == is_raised
    if data is not None:
        assert ProducerIdBlock.decode(data).last >= max(seen, NOW_MS)


@pytest.mark.parametrize(("node_id", "generated", "raises"), [(3, 0, 0), (1002, 0, 2), (1002, 2, 0), (1_000_000, 0, 0)])
def test_generated_broker_ids_go_on_above_those_that_were_given(node_id: int, generated: int, raises: int) -> None:
    plan = planned(broker(node_id), present=PresentCluster(broker_ids_generated=generated))
    assert [one.path for one in plan.others].count(BROKER_SEQUENCE) == raises
