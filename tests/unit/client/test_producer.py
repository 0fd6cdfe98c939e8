"""The producer against brokers that fail in every way: nothing lost, nothing twice, nothing out of order."""

import asyncio
import random
import re

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.broker_connection import ConnectionOptions
from barnabas.client.cluster import Cluster, ClusterOptions
from barnabas.client.errors import UnknownTopic
from barnabas.client.producing.delivery_status import DeliveryStatus
from barnabas.client.producing.producer import Delivered, Producer, ProducerOptions
from barnabas.records.batch import Codec, read_header
from barnabas.records.builder import Header
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.leaders import NodeEndpoint
from tests.support.network import run
from tests.support.played_cluster import Fault, PlayedCluster

QUICK = ClusterOptions(
    ConnectionOptions(request_timeout_seconds=0.2), retry_timeout_seconds=5, backoff_seconds_min=0.001
)
ORDERS = TopicPartition("orders", 0)
IMMEDIATE = ProducerOptions(linger_seconds=0)


def _values(played: PlayedCluster, partition: TopicPartition = ORDERS) -> list[bytes | None]:
    return [record.value for record in played.logs[partition].records()]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_arrive_as_they_were_sent(codec: Codec) -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster, ProducerOptions(codec=codec)) as producer:
                await producer.send("orders", b"two coffees", key=b"42", headers=[("n", None)], timestamp_ms=5)
                delivery = await producer.send("orders", None, key=b"", timestamp_ms=7)
                assert await delivery == Delivered(ORDERS, 1, 7)
            log = played.logs[ORDERS]
            assert [record[:4] for record in log.records()] == [
                (b"42", b"two coffees", (Header("n", None),), 5),
                (b"", None, (), 7),
            ]
            assert len(log.batches) == 1, "records that come together go together"
            header = read_header(log.batches[0])
            assert header.codec_number == codec
            assert header.has_producer

    run(scenario())


@pytest.mark.parametrize(
    "fault",
    [
        Fault.CLOSE,
        Fault.DO_AND_CLOSE,
        Fault.SILENCE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_batch_is_sent_again_and_stored_once(fault: Fault | ErrorCode) -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster, IMMEDIATE) as producer:
                await (await producer.send("orders", b"0"))
                played.faults[ApiKey.PRODUCE] += [fault, fault]
                for number in range(1, 5):
                    await producer.send("orders", b"%d" % number)
                    await asyncio.sleep(0)
                await producer.flush()
            assert _values(played) == [b"0", b"1", b"2", b"3", b"4"]

    run(scenario())


def test_random_faults_on_many_partitions_lose_repeat_and_reorder_nothing() -> None:
    source = random.Random(20261115)
    faults = [Fault.CLOSE, Fault.DO_AND_CLOSE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]

    async def scenario() -> None:
        async with PlayedCluster({"orders": 4}, brokers=2) as played, Cluster(played.bootstrap, QUICK) as cluster:
            options = ProducerOptions(linger_seconds=0, batch_bytes_max=400)
            async with Producer(cluster, options) as producer:
                for number in range(300):
                    if source.random() < 0.1:
                        played.faults[ApiKey.PRODUCE].append(source.choice(faults))
                    if source.random() < 0.02:
                        played.move_leader(TopicPartition("orders", source.randrange(4)), source.randint(1, 2))
                    await producer.send("orders", b"%d" % number, partition=number % 4)
                    if source.random() < 0.3:
                        await asyncio.sleep(0.001)
                played.faults[ApiKey.PRODUCE].clear()
                await producer.flush()
            for index in range(4):
                expected = [b"%d" % number for number in range(300) if number % 4 == index]
                assert _values(played, TopicPartition("orders", index)) == expected

    run(scenario())


def test_refused_batch_fails_alone_and_frees_its_sequence_numbers() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster, IMMEDIATE) as producer:
                await (await producer.send("orders", b"first"))
                played.faults[ApiKey.PRODUCE].append(ErrorCode.INVALID_RECORD)
                refused = await producer.send("orders", b"refused")
                with pytest.raises(KafkaError, match="INVALID_RECORD: orders-0: as the test wants it"):
                    await refused
                with pytest.raises(KafkaError, match="INVALID_RECORD"):
                    await producer.flush()
                await (await producer.send("orders", b"last"))
            assert _values(played) == [b"first", b"last"]
            assert played.count(ApiKey.INIT_PRODUCER_ID) == 1

    run(scenario())


def test_batch_whose_fate_is_unknown_fails_in_time_and_changes_the_identity() -> None:
    options = ProducerOptions(linger_seconds=0, delivery_timeout_seconds=0.1)

    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster, options) as producer:
                played.faults[ApiKey.PRODUCE] += [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000
                with pytest.raises(KafkaError, match=r"orders-0: not delivered within 0\.1 s") as late:
                    await (await producer.send("orders", b"late"))
                assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
                played.faults[ApiKey.PRODUCE].clear()
                await (await producer.send("orders", b"next"))
                with pytest.raises(KafkaError):
                    await producer.flush()
            assert _values(played) == [b"next"]
            assert played.count(ApiKey.INIT_PRODUCER_ID) == 2

    run(scenario())


def test_leader_that_moved_is_followed_by_what_the_reply_says() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}, brokers=2) as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster, IMMEDIATE) as producer:
                await (await producer.send("orders", b"a"))
                played.move_leader(ORDERS, 2)
                asked = played.count(ApiKey.METADATA)
                await (await producer.send("orders", b"b"))
                assert played.count(ApiKey.METADATA) == asked, "the reply told who leads: no need to ask"
            assert _values(played) == [b"a", b"b"]

    run(scenario())


def test_send_waits_for_room_when_the_broker_is_slow() -> None:
    options = ProducerOptions(linger_seconds=100, buffer_bytes_max=2000, batch_bytes_max=1000)

    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster, options) as producer:
                for _ in range(50):
                    await producer.send("orders", b"x" * 300)
                assert sum(value is not None for value in _values(played)) >= 40, "the buffer holds only a few"
                await producer.send("orders", b"y" * 5000)  # larger than the whole buffer: goes when it is alone
            assert len(_values(played)) == 51

    run(scenario())


def test_no_room_in_time_is_an_error() -> None:
    options = ProducerOptions(linger_seconds=0, buffer_bytes_max=200, delivery_timeout_seconds=0.1)

    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap) as cluster:
            producer = Producer(cluster, options)
            played.faults[ApiKey.PRODUCE].append(Fault.SILENCE)
            await producer.send("orders", b"x" * 150)
            with pytest.raises(KafkaError, match="no buffer space for another record"):
                await producer.send("orders", b"x" * 150)
            await producer.close()

    run(scenario())


def test_records_without_acknowledgement_are_sent_and_not_awaited() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster, ProducerOptions(acks=0)) as producer:
                delivered = await (await producer.send("orders", b"x", timestamp_ms=3))
                assert delivered == Delivered(ORDERS, -1, 3)
                while not _values(played):  # noqa: ASYNC110 - nobody tells when it has arrived
                    await asyncio.sleep(0.001)
            assert not read_header(played.logs[ORDERS].batches[0]).has_producer, "idempotence needs acks=all"
            assert played.count(ApiKey.INIT_PRODUCER_ID) == 0

    run(scenario())


def test_topic_that_appears_late_is_waited_for() -> None:
    async def scenario() -> None:
        async with PlayedCluster() as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster, IMMEDIATE) as producer:
                sending = asyncio.ensure_future(producer.send("orders", b"x"))
                while played.count(ApiKey.METADATA) < 3:  # noqa: ASYNC110 - the test is the broker's clock
                    await asyncio.sleep(0.001)
                played.add_topic("orders", 1)
                await (await sending)
            assert _values(played) == [b"x"]

    run(scenario())


def test_topic_that_is_not_there_is_unknown_after_a_while() -> None:
    async def scenario() -> None:
        async with (
            PlayedCluster() as played,
            Cluster(played.bootstrap, QUICK) as cluster,
            Producer(cluster, ProducerOptions(topic_timeout_seconds=0.05)) as producer,
        ):
            with pytest.raises(UnknownTopic, match="topic 'orders' does not exist"):
                await producer.send("orders", b"x")

    run(scenario())


def test_partition_that_is_not_there_is_refused() -> None:
    async def scenario() -> None:
        async with (
            PlayedCluster({"orders": 2}) as played,
            Cluster(played.bootstrap, QUICK) as cluster,
            Producer(cluster) as producer,
        ):
            with pytest.raises(UnknownTopic, match="partitions 0 to 1, not 2"):
                await producer.send("orders", b"x", partition=2)

    run(scenario())


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, "KAFKA_STORAGE_ERROR: orders-0: as the test wants it"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "NOT_LEADER_OR_FOLLOWER: orders-0: as the test wants it"),
        (Fault.CLOSE, "the connection to 127.0.0.1:[0-9]+ is closed: the peer closed it"),
        (Fault.SILENCE, None),
    ],
)
def test_status_says_whom_records_wait_for_and_why(fault: Fault | ErrorCode, problem: str | None) -> None:
    patient = ClusterOptions(backoff_seconds_min=0.001)

    async def scenario() -> None:
        async with (
            PlayedCluster({"orders": 1}) as played,
            Cluster(played.bootstrap, patient) as cluster,
            Producer(cluster, IMMEDIATE) as producer,
        ):
            await (await producer.send("orders", b"first"))
            assert producer.status() == DeliveryStatus(1, 0, 0, ())
            played.faults[ApiKey.PRODUCE] += [fault] * 1000
            deliveries = [await producer.send("orders", b"%d" % number) for number in range(5)]
            asked = played.count(ApiKey.PRODUCE)
            while played.count(ApiKey.PRODUCE) < asked + (1 if fault is Fault.SILENCE else 2):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            status = producer.status()
            assert (status.delivered_records, status.failed_records, status.pending_records) == (1, 0, 5)
            (obstacle,) = status.obstacles
            assert obstacle.partition == ORDERS
            assert obstacle.leader == NodeEndpoint(1, "127.0.0.1", played.port(1), None)
            if problem is None:
                assert obstacle.problem is None
            else:
                assert re.fullmatch(problem, str(obstacle.problem))
            played.faults[ApiKey.PRODUCE].clear()
            if fault is not Fault.SILENCE:
                await deliveries[-1]
                assert producer.status() == DeliveryStatus(6, 0, 0, ())
            await producer.close()

    run(scenario())


def test_status_counts_what_was_given_up() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            producer = Producer(cluster, ProducerOptions(linger_seconds=100))
            played.faults[ApiKey.PRODUCE].append(ErrorCode.INVALID_RECORD)
            await producer.send("orders", b"refused")
            with pytest.raises(KafkaError, match="INVALID_RECORD"):
                await producer.flush()
            await producer.send("orders", b"never sent")
            await producer.close()
            status = producer.status()
            assert (status.delivered_records, status.failed_records, status.pending_records) == (0, 1, 1)

    run(scenario())


def test_metadata_that_cannot_be_refreshed_fails_no_record() -> None:
    """A full batch makes the producer look for new partitions when its metadata is old."""
    forgetful = ClusterOptions(metadata_age_seconds_max=0, backoff_seconds_min=0.001)

    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, forgetful) as cluster:
            async with Producer(cluster, ProducerOptions(linger_seconds=0, batch_bytes_max=400)) as producer:
                await producer.send("orders", b"first")
                played.faults[ApiKey.METADATA] += [Fault.CLOSE, ErrorCode.LEADER_NOT_AVAILABLE, Fault.CLOSE]
                for _ in range(10):
                    await producer.send("orders", b"x" * 300)
            assert len(_values(played)) == 11

    run(scenario())


def test_closed_producer_fails_what_it_did_not_deliver() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            producer = Producer(cluster, ProducerOptions(linger_seconds=100))
            delivery = await producer.send("orders", b"x")
            await producer.close()
            with pytest.raises(KafkaError, match="closed before it was delivered"):
                await delivery
            with pytest.raises(KafkaError, match="the producer is closed"):
                await producer.send("orders", b"y")
            assert _values(played) == []

    run(scenario())
