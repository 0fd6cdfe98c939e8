"""Who leads the partitions of three brokers, and what clients are told of it."""

import asyncio
import logging
from collections.abc import Iterator, Sequence

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.broker import app
from barnabas.metadata.image import ClusterImage, Partition
from barnabas.metadata.znodes import PartitionState
from barnabas.testing import Cluster, ClusterBroker
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.kraft import batch
from tests.unit.testing.cluster_requests import (
    another,
    ask,
    create,
    led_by,
    metadata,
    partition_in,
    served,
    set_config,
)

TOPIC = "orders"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"min.insync.replicas": 3}) as one:
        assert create(one[1], TOPIC, 3, 3) is ErrorCode.NONE
        one.wait_until_ready()
        yield one


def test_replica_that_is_gone_is_shown_as_offline_and_eligible(cluster: Cluster) -> None:
    gone = another(cluster, cluster.controller)
    gone.kill()
    cluster.wait_until_ready()
    asked = another(cluster, gone)
    [described] = ask(asked, ApiKey.DESCRIBE_TOPIC_PARTITIONS, {"topics": [{"name": TOPIC}]}).topics
    [told] = metadata(asked, TOPIC).topics
    for one in (*described.partitions, *told.partitions):
        assert gone.id not in one.isr_nodes
        assert len(one.isr_nodes) == 2
        assert one.leader_id in one.isr_nodes
        assert one.offline_replicas == (gone.id,)
    for one in described.partitions:
        assert (one.eligible_leader_replicas, one.last_known_elr) == ((gone.id,), ())


# -- elections that somebody asks for ----------------------------------------------------------------------------------


PREFERRED, UNCLEAN = 0, 1


def elect(broker: ClusterBroker, election_type: int, partitions: Sequence[int] | None) -> dict[int, ErrorCode]:
    """Null is about all partitions."""
    topics = None if partitions is None else [{"topic": TOPIC, "partitions": partitions}]
    values = {"election_type": election_type, "topic_partitions": topics, "timeout_ms": 10_000}
    answer = ask(broker, ApiKey.ELECT_LEADERS, values)
    assert ErrorCode(answer.error_code) is ErrorCode.NONE
    return {
        one.partition_id: ErrorCode(one.error_code)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }


def test_preferred_replicas_lead_again_when_somebody_asks_any_broker(cluster: Cluster) -> None:
    gone = another(cluster, cluster.controller)
    [index] = led_by(cluster, TOPIC, gone)
    gone.kill()
    cluster.wait_until_ready()
    asked = another(cluster, gone, cluster.controller)
    assert elect(asked, PREFERRED, [index, index]) == {index: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    gone.start()
    cluster.wait_until_ready()
    cluster.wait_until_in_sync()
    cluster.wait_until_ready()
    before = partition_in(asked, TOPIC, index)
    assert before.leader != gone.id

    assert elect(asked, PREFERRED, None) == {index: ErrorCode.NONE}
    after = partition_in(asked, TOPIC, index)
    assert (after.leader, after.leader_epoch) == (gone.id, before.leader_epoch + 1)
    assert elect(asked, PREFERRED, None) == {}
    others = dict.fromkeys(range(3), ErrorCode.ELECTION_NOT_NEEDED)
    assert elect(asked, PREFERRED, [0, 1, 2, 7]) == {**others, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_partition_that_nobody_in_sync_can_lead_is_led_by_whoever_there_is_when_somebody_asks(cluster: Cluster) -> None:
    leader = another(cluster, cluster.controller)
    [index] = led_by(cluster, TOPIC, leader)
    assert set_config(leader, TOPIC, "min.insync.replicas", "1") is ErrorCode.NONE
    others = [one for one in cluster if one is not leader]
    for one in others:
        one.kill()
    cluster.wait_until_ready()
    assert partition_in(leader, TOPIC, index).isr == (leader.id,)
    assert elect(leader, UNCLEAN, [index]) == {index: ErrorCode.ELECTION_NOT_NEEDED}

    leader.kill()
    alone = others[0]
    alone.start()
    assert partition_in(alone, TOPIC, index).leader == -1
    assert elect(alone, PREFERRED, [index]) == {index: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect(alone, UNCLEAN, [index]) == {index: ErrorCode.NONE}
    elected = partition_in(alone, TOPIC, index)
    assert (elected.leader, elected.isr, elected.is_recovering) == (alone.id, (alone.id,), True)


def test_election_of_an_unknown_type_is_refused(cluster: Cluster) -> None:
    values = {"election_type": 9, "topic_partitions": None, "timeout_ms": 10_000}
    assert ErrorCode(ask(cluster[1], ApiKey.ELECT_LEADERS, values).error_code) is ErrorCode.INVALID_REQUEST


# -- brokers that stop -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_controller", [True, False])
def test_broker_that_stops_has_others_lead_before_it_is_gone(cluster: Cluster, is_controller: bool) -> None:
    stopping = cluster.controller if is_controller else another(cluster, cluster.controller)
    watching = another(cluster, stopping)
    history = served(watching).running.cluster.history
    led: list[tuple[bool, bool]] = []

    def look(_: ClusterImage, image: ClusterImage) -> None:
        leads = any(one.leader == stopping.id for one in image.topics[TOPIC].partitions)
        led.append((stopping.id in image.brokers, leads))

    history.subscribe(look)
    stopping.stop()
    cluster.wait_until_ready()
    history.unsubscribe(look)
    assert (True, False) in led, "it is there, and leads nothing"
    assert (False, True) not in led, "it never left what it led behind"


def test_broker_that_nobody_answers_stops_in_time(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(app, "HAND_OVER_SECONDS", 0.01)
    monkeypatch.setattr(app, "hand_over", never)
    another(cluster, cluster.controller).stop()
    cluster.wait_until_ready()


def test_setting_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def must_not(*_: object) -> None:
        raise AssertionError("it hands over")

    monkeypatch.setattr(app, "hand_over", must_not)
    with Cluster(brokers=2, settings={"controlled.shutdown.enable": "false"}) as cluster:
        cluster[1].stop()


# -- partitions that nobody is known to be able to lead ----------------------------------------------------------------


def test_longest_log_of_all_replicas_leads_when_no_state_says_who_could(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a loss of power on all machines: nobody is in sync any more, and who is back says what it has."""
    index = 0
    one = partition_in(cluster[1], TOPIC, index)
    longest = next(broker for broker in cluster if broker.id not in (one.leader, cluster.controller.id))
    name = TopicPartition(TOPIC, index)

    async def lose_everything() -> Partition:
        """Returns the partition as it was when the broker began to lead it: others join soon."""
        log = served(longest).running.logs.get(name)
        assert log is not None
        log.append_as_follower(batch([b"v"] * 5))
        log.write()
        history = served(cluster[1]).running.cluster.history
        electing = asyncio.ensure_future(
            history.wait_for(lambda image: image.topics[TOPIC].partitions[index].leader == longest.id)
        )
        await asyncio.sleep(0)  # it looks from now on
        nobody = PartitionState(-1, one.leader_epoch + 1, (), 1, min_insync_replicas=3)
        path = PartitionState.path_of(TOPIC, index)
        await served(cluster[1]).running.cluster.membership.store.set(path, nobody.encode())
        async with asyncio.timeout(60):
            elected = await electing
        return elected.topics[TOPIC].partitions[index]

    with caplog.at_level(logging.ERROR):
        after = cluster.home.run(lose_everything())
    assert (after.leader, after.isr, after.is_recovering) == (longest.id, (longest.id,), True)
    [told] = [record.getMessage() for record in caplog.records if "the longest" in record.getMessage()]
    assert f"broker {longest.id} ends at 5" in told
