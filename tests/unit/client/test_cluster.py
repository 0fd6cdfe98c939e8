"""What a client knows of a cluster, and how it gets to know it again."""

import socket

import pytest

from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import TopicPartition
from barnabas.client.broker_connection import ConnectionOptions
from barnabas.client.cluster import Cluster, ClusterOptions, parse_address
from barnabas.client.errors import ClusterUnreachable, UnknownTopic
from barnabas.client.offsets import end_offsets
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.leaders import LeaderAndEpoch, NodeEndpoint
from tests.support.network import run
from tests.support.played_cluster import Fault, PlayedCluster

QUICK = ClusterOptions(ConnectionOptions(request_timeout_seconds=5), retry_timeout_seconds=5, backoff_seconds_min=0.001)
ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("klamm", ("klamm", 9092)),
        (" klamm:1234 ", ("klamm", 1234)),
        ("[::1]:1234", ("::1", 1234)),
        ("[::1]", ("::1", 9092)),
    ],
)
def test_address_is_parsed(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "klamm:", "klamm:0", "klamm:70000", ":9092", "a b", "::1", "klamm:port"])
def test_bad_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="HOST:PORT"):
        parse_address(text)


def test_first_bootstrap_address_that_answers_is_enough() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            dead_port = taken.getsockname()[1]
        async with (
            PlayedCluster({"orders": 2}, brokers=2) as played,
            Cluster(f"127.0.0.1:{dead_port},{played.bootstrap}") as cluster,
        ):
            assert set(cluster.view.brokers) == {1, 2}
            assert cluster.view.cluster_id == "castle"
            assert [one.leader_id for one in (await cluster.topic("orders")).partitions] == [1, 2]

    run(scenario())


def test_cluster_that_does_not_answer_is_said_to_be_unreachable_with_its_addresses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def scenario() -> None:
        async with Cluster(f"127.0.0.1:{port}"):
            raise AssertionError("nobody is there")

    with pytest.raises(ClusterUnreachable, match=f"no broker answers at 127.0.0.1:{port}") as unreachable:
        run(scenario())
    assert unreachable.value.addresses == (f"127.0.0.1:{port}",)


def test_topic_is_asked_for_once_and_remembered() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap) as cluster:
            before = played.count(ApiKey.METADATA)
            await cluster.topic("orders")
            await cluster.topic("orders")
            assert played.count(ApiKey.METADATA) == before + 1

    run(scenario())


def test_unknown_topic_and_partition_are_told_at_once() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 2}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            with pytest.raises(UnknownTopic, match="topic 'letters' does not exist"):
                await end_offsets(cluster, [TopicPartition("letters", 0)])
            with pytest.raises(UnknownTopic, match="topic 'orders' has partitions 0 to 1, not 7"):
                await end_offsets(cluster, [TopicPartition("orders", 7)])

    run(scenario())


@pytest.mark.parametrize("fault", [Fault.CLOSE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE])
def test_call_that_fails_for_a_moment_is_tried_again(fault: Fault | ErrorCode) -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            played.faults[ApiKey.LIST_OFFSETS] += [fault, fault]
            assert await end_offsets(cluster, [ORDERS]) == {ORDERS: 0}
            assert played.count(ApiKey.LIST_OFFSETS) == 3

    run(scenario())


def test_call_that_is_refused_is_not_tried_again() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            played.faults[ApiKey.LIST_OFFSETS].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            with pytest.raises(KafkaError) as refused:
                await end_offsets(cluster, [ORDERS])
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert played.count(ApiKey.LIST_OFFSETS) == 1

    run(scenario())


def test_call_that_never_succeeds_ends_in_time_with_the_last_problem() -> None:
    options = ClusterOptions(retry_timeout_seconds=0.1, backoff_seconds_min=0.01)

    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, options) as cluster:
            played.faults[ApiKey.LIST_OFFSETS] += [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
            with pytest.raises(KafkaError, match="the last problem was: NOT_LEADER_OR_FOLLOWER") as late:
                await end_offsets(cluster, [ORDERS])
            assert late.value.code is ErrorCode.REQUEST_TIMED_OUT

    run(scenario())


def test_leader_that_moved_is_found_again() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}, brokers=2) as played, Cluster(played.bootstrap, QUICK) as cluster:
            await cluster.topic("orders")
            assert await cluster.by_leader([ORDERS]) == {1: [ORDERS]}
            played.move_leader(ORDERS, 2)
            await cluster.refresh(["orders"])
            assert await cluster.by_leader([ORDERS]) == {2: [ORDERS]}

    run(scenario())


def test_leader_is_learned_from_a_reply_only_when_it_is_newer() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            await cluster.topic("orders")
            endpoint = NodeEndpoint(7, "frieda", 9092)
            assert not cluster.learn_leader(ORDERS, LeaderAndEpoch(7, 0), [endpoint]), "the epoch is not newer"
            assert not cluster.learn_leader(ORDERS, LeaderAndEpoch(8, 1), [endpoint]), "nobody knows where it is"
            assert cluster.learn_leader(ORDERS, LeaderAndEpoch(7, 1), [endpoint])
            assert cluster.view.leader(ORDERS).leader_id == 7
            assert cluster.view.brokers[7] == endpoint

    run(scenario())


def test_lanes_have_connections_of_their_own() -> None:
    async def scenario() -> None:
        async with PlayedCluster() as played, Cluster(played.bootstrap) as cluster:
            general = await cluster.connection(1)
            mine = await cluster.connection(1, lane="mine")
            assert general is not mine
            assert await cluster.connection(1) is general
            await cluster.close_lane("mine")
            assert mine.is_closed
            assert not general.is_closed

    run(scenario())


def test_broker_that_did_not_answer_in_one_lane_is_not_asked_for_metadata() -> None:
    options = ClusterOptions(ConnectionOptions(request_timeout_seconds=0.2))

    async def scenario() -> None:
        async with PlayedCluster(brokers=2) as played, Cluster(played.bootstrap, options) as cluster:
            general = await cluster.any_connection()
            halted = 1 if await cluster.connection(1) is general else 2
            lane = await cluster.connection(halted, lane="mine")
            played.faults[ApiKey.METADATA].append(Fault.SILENCE)
            with pytest.raises(KafkaError, match="did not answer"):
                await lane.call(ApiKey.METADATA, {"topics": []})

            assert (await cluster.any_connection()).name == (await cluster.connection(3 - halted)).name
            assert not general.is_closed, "other requests may be under way"

            await cluster.connection(halted, lane="mine")
            assert await cluster.any_connection() is general, "it answers again"

    run(scenario())
