"""Replicated topics of a cluster: what is acknowledged is on every replica in sync, and survives all but one."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.replication.waiting import FOREVER
from barnabas.storage.log.log import Log
from barnabas.testing import Cluster, ClusterBroker
from barnabas.testing.values import build_batch
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.network import until
from tests.unit.testing.cluster_requests import ask, image_of, served

SETTINGS = {
    "replica.lag.time.max.ms": 500,
    "replica.fetch.wait.max.ms": 100,
    "offsets.topic.replication.factor": 3,
    "auto.leader.rebalance.enable": False,
}
MINIMUM = {"min.insync.replicas": 2}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as one:
        one.create_topic("orders", configs=MINIMUM, replicas=3)
        yield one


def log_of(broker: ClusterBroker, topic: str = "orders") -> Log:
    log = served(broker).logs.get(TopicPartition(topic, 0))
    assert log is not None
    return log


def leader(cluster: Cluster, topic: str = "orders") -> ClusterBroker:
    found = cluster.leader_of(topic)
    assert found is not None
    return found


def followers(cluster: Cluster) -> list[ClusterBroker]:
    return [one for one in cluster if one is not leader(cluster)]


def values(cluster: Cluster) -> list[bytes | None]:
    return [one.value for one in cluster.records("orders")]


def stored(log: Log) -> bytes:
    """The bytes of all batches, as they are on the disk."""
    found = log.read(log.log_start_offset, 1 << 20).slice
    if found is None:
        return b""
    try:
        return bytes(found.read())
    finally:
        found.release()


def wait_for_ends(cluster: Cluster, end_offset: int, high_watermark: int | None = None) -> None:
    """Until every log ends there, and knows how far it is committed."""

    expected = (end_offset, end_offset if high_watermark is None else high_watermark)

    def is_so() -> bool:
        return all((log_of(one).end_offset, log_of(one).high_watermark) == expected for one in cluster)

    cluster.home.run(until(is_so))


def append_unacknowledged(broker: ClusterBroker, value: bytes) -> None:
    """With acks=1: in the leader's log, whoever else has it."""

    async def append() -> None:
        done = asyncio.get_running_loop().create_future()
        partition = served(broker).replicas.find("orders", 0)
        appended = partition.append(bytearray(build_batch([value], None, 0)))
        partition.when_committed(appended.last_offset, 1, FOREVER, done.set_result)
        assert await done is None

    broker._require_running().home.run(append())


def test_acknowledged_records_are_on_every_replica(cluster: Cluster) -> None:
    assert cluster.append("orders", [b"a", b"b"]) == 0
    assert [log_of(one).end_offset for one in cluster] == [2, 2, 2]
    wait_for_ends(cluster, 2)
    assert len({stored(log_of(one)) for one in cluster}) == 1
    assert image_of(cluster[1]).partition("orders", 0).min_insync_replicas == 2


@pytest.mark.parametrize("leave", [ClusterBroker.stop, ClusterBroker.kill], ids=["stop", "kill"])
def test_each_leader_goes_and_nothing_is_lost(cluster: Cluster, leave: Callable[[ClusterBroker], None]) -> None:
    for number in range(3):
        cluster.append("orders", [b"%d" % number])
        gone = leader(cluster)
        leave(gone)
        assert leader(cluster) is not gone
        cluster.append("orders", [b"%d again" % number])
        gone.start()
        cluster.wait_until_in_sync()
    assert values(cluster) == [b"0", b"0 again", b"1", b"1 again", b"2", b"2 again"]
    wait_for_ends(cluster, 6)
    assert len({stored(log_of(one)) for one in cluster}) == 1


def test_fewer_than_the_minimum_take_nothing(cluster: Cluster) -> None:
    cluster.append("orders", [b"a"])
    for broker in followers(cluster):
        broker.kill()
    with pytest.raises(KafkaError) as caught:
        cluster.append("orders", [b"b"])
    assert caught.value.code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    cluster.start()
    cluster.wait_until_in_sync()
    cluster.append("orders", [b"c"])
    assert values(cluster)[0] == b"a"
    assert values(cluster)[-1] == b"c"


def test_follower_that_hangs_leaves_the_isr_and_comes_back(cluster: Cluster) -> None:
    follower = next(one for one in followers(cluster) if one is not cluster.controller)  # which must be asked
    follower.pause()
    cluster.append("orders", [b"a"])
    isr = image_of(leader(cluster)).partition("orders", 0).isr
    assert follower.id not in isr
    assert len(isr) == 2
    follower.resume()
    cluster.wait_until_in_sync()
    wait_for_ends(cluster, 1)


def test_what_only_a_deposed_leader_had_is_cut_off(cluster: Cluster) -> None:
    cluster.append("orders", [b"a"])
    old = leader(cluster)
    cluster.isolate(old.id)
    append_unacknowledged(old, b"only here")
    assert log_of(old).end_offset == 2
    old.kill()
    cluster.heal()
    cluster.append("orders", [b"b"])
    cluster.append("orders", [b"c"])
    old.start()
    cluster.wait_until_in_sync()
    wait_for_ends(cluster, 3)
    assert values(cluster) == [b"a", b"b", b"c"]
    assert len({stored(log_of(one)) for one in cluster}) == 1


def test_records_are_deleted_on_every_replica(cluster: Cluster) -> None:
    cluster.append("orders", [b"a"])
    cluster.append("orders", [b"b"])
    asked = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}], "timeout_ms": 60_000}
    answer = ask(leader(cluster), ApiKey.DELETE_RECORDS, asked)
    [answered] = answer.topics[0].partitions
    assert (answered.error_code.value, answered.low_watermark) == (0, 1)
    assert [log_of(one).log_start_offset for one in cluster] == [1, 1, 1]


def test_follower_that_missed_what_was_deleted_begins_again(cluster: Cluster) -> None:
    follower = followers(cluster)[0]
    follower.stop()
    for value in (b"a", b"b", b"c"):
        cluster.append("orders", [value])
    asked = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 2}]}], "timeout_ms": 60_000}
    ask(leader(cluster), ApiKey.DELETE_RECORDS, asked)
    follower.start()
    cluster.wait_until_in_sync()
    wait_for_ends(cluster, 3)
    assert log_of(follower).log_start_offset == 2


def test_synced_topic_is_synced_on_every_replica_before_the_answer(cluster: Cluster) -> None:
    cluster.create_topic("ledger", configs={**MINIMUM, "flush.messages": 1}, replicas=3)
    cluster.append("ledger", [b"a"])
    assert [log_of(one, "ledger").recovery_point for one in cluster] == [1, 1, 1]


def test_follower_gets_on_however_little_it_asks_for() -> None:
    """What it is sent ends in the middle of a batch, and the next one may be larger than all that it asks for."""
    with Cluster(brokers=3, settings={**SETTINGS, "replica.fetch.max.bytes": 300}) as cluster:
        cluster.create_topic("orders", configs={"min.insync.replicas": 1}, replicas=3)
        follower = followers(cluster)[0]
        follower.stop()
        for number in range(20):
            cluster.append("orders", [b"x" * 37 * number])
        follower.start()
        cluster.wait_until_in_sync()
        wait_for_ends(cluster, 20)
        assert len({stored(log_of(one)) for one in cluster}) == 1


def test_topic_that_is_deleted_leaves_no_fetch_behind(cluster: Cluster) -> None:
    cluster.append("orders", [b"a"])
    cluster.delete_topic("orders")
    cluster.create_topic("orders", replicas=3)
    assert cluster.append("orders", [b"b"]) == 0
    wait_for_ends(cluster, 1)
    assert values(cluster) == [b"b"]
