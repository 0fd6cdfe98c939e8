"""A producer and a consumer group that go on while a cluster has faults, and what must be true of them afterwards.

```python
with Writing(cluster.bootstrap, "orders", 6) as writing:    # numbered records, acks=all, to every partition in turn
    ...                                                     # a fault
    writing.wait_for_more()                                 # it goes on
check_records(cluster.bootstrap, "orders", writing.acked)   # all is there: where it was acked, in order, once
```

The producer is idempotent, so that nothing may be there twice.
"""

import threading
from collections.abc import Iterable, Mapping
from contextlib import closing
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.kafka import wait_until

PATIENCE_SECONDS = 180
_PAUSE_SECONDS = 0.01
_CLIENT = {"reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 1000, "log_level": 0}

Acked = Mapping[int, Mapping[int, bytes]]
"""The values by partition and offset."""


class _Going:
    """A thread from `__enter__` to `__exit__`."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._is_abandoned = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._go)

    def _go(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - the test's thread raises it
            self._failure = error

    def _work(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_abandoned = error is not None
        self._is_over.set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure


class Writing(_Going):
    """Produces numbers. The end waits until every one of them is acked."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        client: Mapping[str, object] | None = None,
        pause_seconds: float = _PAUSE_SECONDS,
    ) -> None:
        """`client` has more of librdkafka's settings."""
        super().__init__()
        self._pause_seconds = pause_seconds
        self.acked: dict[int, dict[int, bytes]] = {index: {} for index in range(partitions)}
        self._newest = dict.fromkeys(range(partitions), -1)
        self._errors: list[str] = []
        self._topic = topic
        self._sent = 0
        settings: dict[str, object] = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        settings["message.timeout.ms"] = PATIENCE_SECONDS * 1000
        self._producer = Producer({**_CLIENT, **settings, **(client or {})})

    def wait_for_more(self, partitions: Iterable[int] | None = None) -> None:
        """Until something that was sent from now on is acked in each of these partitions; in all by default."""
        wanted = list(self.acked if partitions is None else partitions)
        sent = self._sent
        wait_until(
            lambda: all(self._newest[index] >= sent for index in wanted) or self._failure is not None,
            f"acks of {self._topic}",
            PATIENCE_SECONDS,
        )

    def _work(self) -> None:
        try:
            while not self._is_over.wait(self._pause_seconds):
                value, partition = str(self._sent).encode(), self._sent % len(self.acked)
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                self._sent += 1
                self._producer.poll(0)
            left = self._producer.flush(0 if self._is_abandoned else PATIENCE_SECONDS)
            assert (left, self._errors) == (0, [])
        finally:
            self._producer.purge()
            self._producer.flush(1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.acked[partition][offset] = value
        self._newest[partition] = int(value)


class GroupReading(_Going):
    """The one member of a group, which commits after every record. At the end it leaves the group."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__()
        self.commits = 0
        self.committed: dict[int, int] = {}
        """The last acknowledged commit of each partition."""
        self.consumed: dict[int, list[bytes | None]] = {}
        """The values of each partition, in the order in which they came."""
        self.rebalances = 0
        self._topic = topic
        self._consumer = Consumer(
            {
                **_CLIENT,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )

    def wait_for_more(self, count: int = 10) -> None:
        """Until so many more commits are acknowledged."""
        before = self.commits
        wait_until(
            lambda: self.commits >= before + count or self._failure is not None,
            f"commits of {self._topic}",
            PATIENCE_SECONDS,
        )

    def wait_for_all(self, acked: Acked) -> None:
        """Until it has consumed as much as was acked."""
        wait_until(
            lambda: (
                self._failure is not None
                or all(len(self.consumed.get(index, ())) >= len(values) for index, values in acked.items())
            ),
            f"the records of {self._topic}",
            PATIENCE_SECONDS,
        )

    def _work(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned)
        with closing(self._consumer):
            while not self._is_over.is_set():
                message = self._consumer.poll(0.1)
                if message is not None and message.error() is None:
                    partition = message.partition()
                    assert partition is not None
                    self.consumed.setdefault(partition, []).append(message.value())
                    self._commit(message)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1

    def _commit(self, message: Message) -> None:
        """One that fails is not tried again: the next one is for the records before it, too."""
        try:
            for one in self._consumer.commit(message=message, asynchronous=False):
                if one.error is None:
                    self.commits += 1
                    self.committed[one.partition] = one.offset
        except KafkaException:
            return


def read_records(bootstrap: str, topic: str, partitions: Iterable[int]) -> dict[int, dict[int, bytes | None]]:
    """Everything that there is, by partition and offset."""
    found: dict[int, dict[int, bytes | None]] = {index: {} for index in partitions}
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    with closing(Consumer({**_CLIENT, **settings})) as consumer:
        places = [TopicPartition(topic, index, OFFSET_BEGINNING) for index in found]
        ends = {place.partition: _end_of(consumer, place) for place in places}
        consumer.assign(places)

        def is_read() -> bool:
            for message in consumer.consume(1000, 0.1):
                partition, offset = message.partition(), message.offset()
                if message.error() is None and partition is not None and offset is not None:
                    found[partition][offset] = message.value()
            return all(end == 0 or end - 1 in found[index] for index, end in ends.items())

        wait_until(is_read, f"the records of {topic}: {ends}", PATIENCE_SECONDS)
    return found


def _end_of(consumer: Consumer, place: TopicPartition) -> int:
    ends: list[int] = []

    def is_known() -> bool:
        try:
            ends.append(consumer.get_watermark_offsets(place, timeout=10)[1])
        except KafkaException:
            return False
        return True

    wait_until(is_known, f"the end of {place}", PATIENCE_SECONDS)
    return ends[-1]


def check_records(bootstrap: str, topic: str, acked: Acked) -> None:
    """All that was acked until now is there, at its offset, in the order in which it was sent, and nothing twice."""
    until_now = {partition: dict(values) for partition, values in acked.items()}  # the producer may go on
    found = read_records(bootstrap, topic, until_now)
    for partition, values in until_now.items():
        wrong = [offset for offset, value in values.items() if found[partition].get(offset) != value]
        assert wrong == [], f"{topic}-{partition}: of {len(values)} acked records"
        numbers = [int(found[partition][offset] or b"-1") for offset in sorted(found[partition])]
        assert numbers == sorted(set(numbers)), f"{topic}-{partition}"
