"""Partitions get further replicas while they are written to: what is answered, and what becomes of them."""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.groups.partitions import OFFSETS_TOPIC
from barnabas.metadata.image import ClusterImage
from barnabas.storage.log.log import Log
from barnabas.testing import Cluster, ClusterBroker
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.kafka import wait_until
from tests.unit.testing.cluster_requests import another, ask, create, partition_in, served

TOPIC = "orders"
PATIENCE_SECONDS = 60


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A minimum of 2, which a topic with one replica cannot have."""
    settings = {"min.insync.replicas": 2, "replica.fetch.wait.max.ms": 100, "offsets.topic.num.partitions": 2}
    with Cluster(brokers=3, settings=settings) as one:
        assert create(one[1], TOPIC, 2, 1) is ErrorCode.NONE
        one.wait_until_ready(PATIENCE_SECONDS)
        yield one


def assign(
    broker: ClusterBroker, replicas: Mapping[int, Sequence[int] | None], topic: str = TOPIC, *, may_grow: bool = True
) -> dict[int, tuple[ErrorCode, str | None]]:
    partitions = [{"partition_index": index, "replicas": asked} for index, asked in replicas.items()]
    values = {
        "timeout_ms": 60_000,
        "allow_replication_factor_change": may_grow,
        "topics": [{"name": topic, "partitions": partitions}],
    }
    answer = ask(broker, ApiKey.ALTER_PARTITION_REASSIGNMENTS, values)
    assert ErrorCode(answer.error_code) is ErrorCode.NONE
    assert answer.allow_replication_factor_change is may_grow
    [told] = answer.responses
    assert told.name == topic
    return {one.partition_index: (ErrorCode(one.error_code), one.error_message) for one in told.partitions}


def in_change(broker: ClusterBroker, topics: Mapping[str, Sequence[int]] | None = None) -> dict[TopicPartition, object]:
    wanted = None
    if topics is not None:
        wanted = [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]
    answer = ask(broker, ApiKey.LIST_PARTITION_REASSIGNMENTS, {"timeout_ms": 60_000, "topics": wanted})
    assert ErrorCode(answer.error_code) is ErrorCode.NONE
    return {
        TopicPartition(topic.name, one.partition_index): (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in answer.topics
        for one in topic.partitions
    }


def ordered(first: int) -> list[int]:
    return [first, *(one for one in (1, 2, 3) if one != first)]


def stored(broker: ClusterBroker, index: int = 0) -> bytes:
    """The bytes of all batches, as they are on the disk."""
    log: Log | None = served(broker).logs.get(TopicPartition(TOPIC, index))
    assert log is not None
    found = log.read(log.log_start_offset, 1 << 24).slice
    assert found is not None
    try:
        return bytes(found.read())
    finally:
        found.release()


def test_producer_with_acks_all_is_never_refused_while_replicas_are_added(cluster: Cluster) -> None:
    cluster.append(TOPIC, [b"before"] * 100, partition=0)
    leader = cluster.leader_of(TOPIC, 0)
    assert leader is not None
    had_enough: list[bool] = []

    def look(_: ClusterImage, image: ClusterImage) -> None:
        partition = served(leader).replicas.get(TOPIC, 0)
        had_enough.append(partition is not None and len(partition.state.isr) >= partition.state.minimum)

    history = served(leader).running.cluster.history
    history.subscribe(look)
    asked = another(cluster, cluster.controller)
    assert assign(asked, {0: ordered(leader.id)}) == {0: (ErrorCode.NONE, None)}
    assert partition_in(asked, TOPIC).replicas == tuple(ordered(leader.id))
    count = 100

    def is_complete() -> bool:
        nonlocal count
        cluster.append(TOPIC, [b"meanwhile"], partition=0)  # with acks=all; raises what refuses it
        count += 1
        return not partition_in(leader, TOPIC).adding

    wait_until(is_complete, "the new replicas to join")
    cluster.wait_until_ready(PATIENCE_SECONDS)
    history.unsubscribe(look)
    assert had_enough
    assert all(had_enough)

    after = partition_in(leader, TOPIC)
    assert (set(after.isr), after.min_insync_replicas) == ({1, 2, 3}, 2)
    assert [record.offset for record in cluster.records(TOPIC)] == list(range(count))
    wait_until(lambda: len({stored(one) for one in cluster}) == 1, "the same records on each broker")

    leader.kill()  # what it had alone is on the others now
    cluster.wait_until_ready(PATIENCE_SECONDS)
    cluster.append(TOPIC, [b"after"], partition=0)
    assert [record.offset for record in cluster.records(TOPIC)] == list(range(count + 1))


def test_addition_is_told_until_its_replicas_are_in_sync(cluster: Cluster) -> None:
    [leader] = partition_in(cluster[1], TOPIC).replicas
    gone = another(cluster, cluster[leader], cluster.controller)
    staying = another(cluster, cluster[leader], gone)
    cluster.cut(leader, gone.id)
    assert assign(cluster[leader], {0: [leader, gone.id]}) == {0: (ErrorCode.NONE, None)}
    name = TopicPartition(TOPIC, 0)
    for asked in (cluster[leader], staying):
        told = {name: ((leader, gone.id), (gone.id,), ())}
        wait_until(lambda asked=asked, told=told: in_change(asked) == told, "all brokers to know it")
        assert in_change(asked, {TOPIC: [1, 0, 0, 7], "nobody": [0]}) == told
        assert in_change(asked, {TOPIC: [1]}) == {}
    cluster.append(TOPIC, [b"written by one"], partition=0)
    assert assign(staying, {0: None})[0][0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    cluster.heal()
    wait_until(lambda: in_change(staying) == {}, "the new replica to join")
    assert set(partition_in(staying, TOPIC).isr) == {leader, gone.id}


def test_what_takes_replicas_away_or_cannot_be_is_refused_for_its_partition_alone(cluster: Cluster) -> None:
    [leader] = partition_in(cluster[1], TOPIC).replicas
    [second] = partition_in(cluster[1], TOPIC, 1).replicas
    answers = assign(cluster[1], {0: [one for one in (1, 2, 3) if one != leader], 1: [second], 7: [1]})
    code, message = answers[0]
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert (
        message
        == f"the partition would be taken from [{leader}]: replicas can be added, but moving them is not built yet"
    )
    assert answers[1] == (ErrorCode.NONE, None)
    assert answers[7][0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert assign(cluster[1], {0: [leader, 9]})[0][0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert assign(cluster[1], {0: None})[0][0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert assign(cluster[1], {0: [1]}, "nobody")[0][0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = assign(cluster[1], {0: ordered(leader)}, may_grow=False)
    assert refused[0][0] is ErrorCode.INVALID_REPLICATION_FACTOR
    assert partition_in(cluster[1], TOPIC).replicas == (leader,)


def test_client_adds_replicas_of_a_topic_and_of_committed_offsets(cluster: Cluster) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        name = TopicPartition(TOPIC, 0)
        [leader] = partition_in(cluster[1], TOPIC).replicas
        client.wait_for(client.admin.assign_replicas(TOPIC, {0: ordered(leader)}))
        wait_until(lambda: not client.wait_for(client.admin.partitions_in_change()), "the new replicas to join")
        [topic] = [one for one in client.topics() if one.name == TOPIC]
        assert set(topic.partitions[0].in_sync_replicas) == {1, 2, 3}
        with pytest.raises(KafkaError) as caught:
            client.wait_for(client.admin.assign_replicas(TOPIC, {0: [9]}))
        assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT

        client.commit_offsets("billing", {name: 5})
        offsets = {one.name: one for one in client.topics()}[OFFSETS_TOPIC]
        before = {one.index: one.replicas for one in offsets.partitions}
        wanted = {index: [*has, *(one for one in (1, 2, 3) if one not in has)] for index, has in before.items()}
        client.wait_for(client.admin.assign_replicas(OFFSETS_TOPIC, wanted))
        wait_until(lambda: not client.wait_for(client.admin.partitions_in_change()), "the new replicas to join")
        assert client.committed_offsets("billing")[name].offset == 5
