"""Consumer groups over a broker that dies of SIGKILL: commits stay, and members go on without a rebalance."""

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import BrokerProcess

PARTITIONS = 4
PATIENCE_SECONDS = 180
SETTINGS = {"offsets.topic.num.partitions": "4"}


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(PATIENCE_SECONDS)


def produce(bootstrap: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in values:
        producer.produce("orders", str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_SECONDS) == 0


class Member:
    def __init__(self, bootstrap: str, name: str) -> None:
        self.values: list[int] = []
        """What it read of the partitions that it has now."""
        self.assignments = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "billing",
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 30_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(["orders"], on_assign=self._assigned)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1
        self.values.clear()

    def poll(self) -> None:
        message = self._consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.values.append(int(message.value()))

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    @property
    def owned(self) -> int:
        return len(self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()


def poll_until(members: list[Member], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, [(one.owned, sorted(one.values)) for one in members]
        for member in members:
            member.poll()


def committed(bootstrap: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("billing")])["billing"]
    found = {one.partition: one.offset for one in answer.result(PATIENCE_SECONDS).topic_partitions}
    return [found[index] for index in range(PARTITIONS)]


def test_commits_survive_a_kill_and_members_go_on_without_a_rebalance(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        create(broker.bootstrap)
        produce(broker.bootstrap, range(20))
        members = [Member(broker.bootstrap, "one"), Member(broker.bootstrap, "two")]
        try:
            poll_until(members, lambda: [one.owned for one in members] == [2, 2])
            poll_until(members, lambda: {value for one in members for value in one.values} == set(range(20)))
            for member in members:
                member.commit()
            assigned = [one.assignments for one in members]

            broker.kill()
            broker.start()

            assert committed(broker.bootstrap) == [5, 5, 5, 5]
            produce(broker.bootstrap, range(20, 40))
            poll_until(members, lambda: {value for one in members for value in one.values} == set(range(40)))
            assert [one.assignments for one in members] == assigned
            assert [one.owned for one in members] == [2, 2]
        finally:
            for member in members:
                member.close()
