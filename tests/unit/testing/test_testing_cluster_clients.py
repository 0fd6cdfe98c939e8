"""Real clients on a test's cluster produce and consume everywhere, and live through brokers that come and go."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from barnabas.client.blocking import BlockingClient
from barnabas.testing import ApiKey, Cluster, ClusterBroker, ErrorCode
from tests.support.testing_broker import PATIENCE
from tests.unit.testing.cluster_requests import another, ask, image_of, images_are_equal, led_by

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
confluent_admin = pytest.importorskip("confluent_kafka.admin", reason="confluent-kafka is not installed")
aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed")

PARTITIONS = 12
COUNT = 300


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as one:
        yield one


def read_all(consumer: "confluent_kafka.Consumer", count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
    return values


def a_consumer(bootstrap: str, group: str) -> "confluent_kafka.Consumer":
    return confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    )


def a_producer(bootstrap: str) -> "confluent_kafka.Producer":
    return confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})


def test_confluent_produces_and_consumes_through_any_broker(cluster: Cluster) -> None:
    asked = another(cluster, cluster.controller)
    admin = confluent_admin.AdminClient({"bootstrap.servers": asked.bootstrap, "log_level": 0})
    for future in admin.create_topics([confluent_admin.NewTopic("orders", PARTITIONS, 1)]).values():
        future.result(30)
    sent = [str(number).encode() for number in range(COUNT)]
    for broker in cluster:
        producer = a_producer(broker.bootstrap)
        for value in sent:
            producer.produce("orders", value, key=value)
        assert producer.flush(60) == 0

    assert len(cluster.records("orders", count=3 * COUNT)) == 3 * COUNT
    assert all(broker.records("orders") for broker in cluster)
    for broker in cluster:
        consumer = a_consumer(broker.bootstrap, f"through-{broker.id}")
        consumer.subscribe(["orders"])
        assert sorted(read_all(consumer, 3 * COUNT)) == sorted(3 * sent)
        consumer.close()


def test_aiokafka_produces_and_consumes_through_any_broker(cluster: Cluster) -> None:
    cluster.create_topic("orders", PARTITIONS)
    sent = sorted(str(number).encode() for number in range(COUNT))

    async def scenario() -> None:
        for broker in cluster:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
            await producer.start()
            try:
                waits = [await producer.send("orders", value, key=value) for value in sent]
                await asyncio.gather(*waits)
            finally:
                await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            "orders", bootstrap_servers=cluster[2].bootstrap, group_id="all", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            async with asyncio.timeout(60):
                values = [(await consumer.getone()).value for _ in range(3 * COUNT)]
            assert sorted(values) == sorted(3 * sent)
        finally:
            await consumer.stop()

    asyncio.run(scenario())
    assert all(broker.records("orders") for broker in cluster)


@pytest.mark.parametrize("leave", [ClusterBroker.stop, ClusterBroker.kill], ids=["stop", "kill"])
def test_idempotent_producer_loses_and_doubles_nothing_while_brokers_restart(
    cluster: Cluster, leave: Callable[[ClusterBroker], None]
) -> None:
    cluster.create_topic("orders", PARTITIONS)
    producer = a_producer(cluster.bootstrap)
    failures: list[object] = []
    is_done = threading.Event()

    def produce() -> None:
        number = 0
        while not is_done.is_set():
            producer.produce(
                "orders", str(number).encode(), on_delivery=lambda error, _: error and failures.append(error)
            )
            producer.poll(0)
            number += 1
            time.sleep(0.002)
        numbers.append(number)

    numbers: list[int] = []
    sending = threading.Thread(target=produce)
    sending.start()
    try:
        for broker in cluster:
            time.sleep(0.3)
            leave(broker)
            broker.start()
    finally:
        is_done.set()
        sending.join()

    assert producer.flush(60) == 0
    assert failures == []
    values = [one.value for one in cluster.records("orders")]
    assert sorted(values) == sorted(str(number).encode() for number in range(numbers[0]))
    assert images_are_equal(cluster)


def groups_of_each_broker(cluster: Cluster) -> dict[str, ClusterBroker]:
    """One group for each broker that coordinates some."""
    found: dict[ClusterBroker, str] = {}
    for number in range(100):
        coordinator = cluster.coordinator_of(f"group{number}")
        assert coordinator is not None
        found.setdefault(coordinator, f"group{number}")
    return {group: broker for broker, group in found.items()}


def create_group_topic(cluster: Cluster) -> None:
    answer = ask(cluster[1], ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["first"]})
    assert ErrorCode(answer.coordinators[0].error_code) is ErrorCode.NONE
    cluster.wait_until_ready()


def test_every_broker_knows_the_coordinator_of_every_group(cluster: Cluster) -> None:
    assert cluster.coordinator_of("first") is None
    create_group_topic(cluster)
    groups = groups_of_each_broker(cluster)
    assert set(groups.values()) == set(cluster)
    for broker in cluster:
        answer = ask(broker, ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": list(groups)})
        told = {one.key: f"{one.host}:{one.port}" for one in answer.coordinators}
        assert told == {group: coordinator.bootstrap for group, coordinator in groups.items()}
        assert all(ErrorCode(one.error_code) is ErrorCode.NONE for one in answer.coordinators)


def test_first_groups_of_all_brokers_at_once_create_the_offsets_topic_once(cluster: Cluster) -> None:
    answers: list[ErrorCode] = []

    def find(broker: ClusterBroker) -> None:
        answer = ask(broker, ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [f"group{broker.id}"]})
        answers.append(ErrorCode(answer.coordinators[0].error_code))

    threads = [threading.Thread(target=find, args=(broker,)) for broker in cluster]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [ErrorCode.NONE] * 3
    assert images_are_equal(cluster)
    assert cluster.topics() == ["__consumer_offsets"]
    assert len({image_of(broker).topics["__consumer_offsets"].id for broker in cluster}) == 1


def test_groups_are_coordinated_by_each_broker(cluster: Cluster) -> None:
    cluster.create_topic("orders", PARTITIONS)
    with BlockingClient(cluster.bootstrap, PATIENCE) as client:
        client.produce("orders", [str(number).encode() for number in range(COUNT)])
    create_group_topic(cluster)
    for group, coordinator in groups_of_each_broker(cluster).items():
        consumers = [a_consumer(broker.bootstrap, group) for broker in cluster if broker is not coordinator]
        for consumer in consumers:
            consumer.subscribe(["orders"])
        values: list[bytes] = []
        deadline = time.monotonic() + 60
        shares: list[int] = []
        while (len(values) < COUNT or shares != [6, 6]) and time.monotonic() < deadline:
            for consumer in consumers:
                messages = [one for one in consumer.consume(COUNT, timeout=0.1) if one.error() is None]
                values += [one.value() for one in messages]
                if messages:
                    consumer.commit(asynchronous=False)
            shares = [len(consumer.assignment()) for consumer in consumers]
        assert len(values) >= COUNT
        observed = cluster.wait_for_group(group, members=2, lag=0, timeout_seconds=30)
        assert sorted(len(member.partitions) for member in observed.members) == [6, 6]
        assert sum(cluster.committed(group).values()) == COUNT
        for consumer in consumers:
            consumer.close()


def test_group_goes_on_when_its_coordinator_restarts(cluster: Cluster) -> None:
    cluster.create_topic("orders", PARTITIONS)
    create_group_topic(cluster)
    group, coordinator = next(iter(groups_of_each_broker(cluster).items()))
    consumer = a_consumer(cluster.bootstrap, group)
    consumer.subscribe(["orders"])
    for number in range(2):
        elsewhere = [
            one for broker in cluster if broker is not coordinator for one in led_by(cluster, "orders", broker)
        ]
        for index in elsewhere:
            cluster.append("orders", [str(number).encode()], partition=index)
        assert len(read_all(consumer, len(elsewhere))) == len(elsewhere)
        consumer.commit(asynchronous=False)
        coordinator.kill()
        assert cluster.coordinator_of(group) is None
        coordinator.start()
        assert cluster.coordinator_of(group) is coordinator
        assert sum(cluster.committed(group).values()) == (number + 1) * len(elsewhere)
    consumer.close()


def test_producer_ids_of_different_brokers_are_different(cluster: Cluster) -> None:
    ids = []
    for broker in 3 * list(cluster):
        answer = ask(broker, ApiKey.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout_ms": 1000})
        assert ErrorCode(answer.error_code) is ErrorCode.NONE
        ids.append(answer.producer_id)
    assert len(set(ids)) == len(ids)
