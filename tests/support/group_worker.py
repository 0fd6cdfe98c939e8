"""A consumer of a group, as a process of its own: `python -m tests.support.group_worker LIBRARY --bootstrap …`.

It can be killed, stopped and continued by signals; SIGTERM lets it close, which makes it leave the group. What it does
is one line of JSON each on standard output, with the machine's monotonic clock:

    {"event": "assigned", "partitions": [0, 2], "at": 12.3}      more partitions than before
    {"event": "revoked", "partitions": [2], "at": 12.5}          given back, or lost
    {"event": "record", "partition": 0, "offset": 7, "value": "…", "at": 12.6}
    {"event": "committed", "at": 12.6}                           everything up to here
    {"event": "refused", "why": "…", "at": 12.6}                 the commit: somebody else goes on from the one before
    {"event": "closed", "at": 13.0}

Offsets are committed after every poll, before anything can be revoked: without violence no record comes twice.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

_POLL_SECONDS = 0.1
_KAFKA_PYTHON_POLL_MS = 10_000
"""kafka-python 3.0.12 stops for good when a poll's time ends between JoinGroup and SyncGroup: let it seldom end."""
_HEARTBEATS_PER_SESSION = 5
_HEARTBEAT_MS_MAX = 300
"""A member hears of a rebalance by its heartbeats: also one with a long session must not keep others waiting."""

_Polled = TypeVar("_Polled")


@dataclass(frozen=True, slots=True)
class Options:
    library: str
    bootstrap: str
    group: str
    topic: str
    assignor: str
    session_timeout_ms: int
    instance: str | None
    client_id: str

    @property
    def heartbeat_ms(self) -> int:
        return min(self.session_timeout_ms // _HEARTBEATS_PER_SESSION, _HEARTBEAT_MS_MAX)


class Stopped(KeyboardInterrupt):
    """SIGTERM came in a poll that can be broken off."""


class Stopping:
    """Whether SIGTERM came."""

    def __init__(self) -> None:
        self.is_set = False
        self._is_raised = False
        signal.signal(signal.SIGTERM, self._set)

    def _set(self, number: int, frame: object) -> None:
        self.is_set = True
        if self._is_raised:
            raise Stopped

    def break_off(self, poll: Callable[[], _Polled]) -> _Polled | None:
        """What a poll got; None when SIGTERM came first."""
        self._is_raised = True
        try:
            return None if self.is_set else poll()
        except Stopped:
            return None
        finally:
            self._is_raised = False


def tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts, "at": time.monotonic()}), flush=True)


def tell_partitions(event: str, partitions: Iterable[Any]) -> None:
    tell(event, partitions=sorted(one.partition for one in partitions))


def tell_record(partition: int, offset: int, value: bytes) -> None:
    tell("record", partition=partition, offset=offset, value=value.decode())


# --- confluent-kafka --------------------------------------------------------------------------------------


def run_confluent(options: Options) -> None:
    from confluent_kafka import Consumer, KafkaException

    settings = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "client.id": options.client_id,
        "partition.assignment.strategy": options.assignor,
        "session.timeout.ms": options.session_timeout_ms,
        "heartbeat.interval.ms": options.heartbeat_ms,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    if options.instance is not None:
        settings["group.instance.id"] = options.instance
    consumer = Consumer(settings)
    consumer.subscribe(
        [options.topic],
        on_assign=lambda _, partitions: tell_partitions("assigned", partitions),
        on_revoke=lambda _, partitions: tell_partitions("revoked", partitions),
        on_lost=lambda _, partitions: tell_partitions("revoked", partitions),
    )
    stopping = Stopping()
    while not stopping.is_set:
        messages = [message for message in consumer.consume(100, _POLL_SECONDS) if message.error() is None]
        for message in messages:
            tell_record(message.partition(), message.offset(), message.value())
        if messages:
            try:
                consumer.commit(asynchronous=False)
                tell("committed")
            except KafkaException as refused:
                tell("refused", why=str(refused))
    consumer.close()


# --- kafka-python -----------------------------------------------------------------------------------------


def run_kafka_python(options: Options) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            tell_partitions("assigned", assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            tell_partitions("revoked", revoked)

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        client_id=options.client_id,
        group_instance_id=options.instance,
        partition_assignment_strategy=[assignors[options.assignor]],
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.heartbeat_ms,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        reconnect_backoff_max_ms=200,
    )
    consumer.subscribe([options.topic], listener=Listener())
    stopping = Stopping()
    while not stopping.is_set:
        batches = stopping.break_off(lambda: consumer.poll(timeout_ms=_KAFKA_PYTHON_POLL_MS)) or {}
        for record in (record for batch in batches.values() for record in batch):
            tell_record(record.partition, record.offset, record.value)
        if batches:
            try:
                consumer.commit()
                tell("committed")
            except KafkaError as refused:
                tell("refused", why=repr(refused))
    consumer.close()


# --- aiokafka ---------------------------------------------------------------------------------------------


def run_aiokafka(options: Options) -> None:
    asyncio.run(_run_aiokafka(options))


async def _run_aiokafka(options: Options) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: Any) -> None:
            tell_partitions("assigned", assigned)

        async def on_partitions_revoked(self, revoked: Any) -> None:
            tell_partitions("revoked", revoked)

    assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        client_id=options.client_id,
        group_instance_id=options.instance,
        partition_assignment_strategy=[assignors[options.assignor]],
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.heartbeat_ms,
        rebalance_timeout_ms=options.session_timeout_ms * 10,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([options.topic], listener=Listener())
    await consumer.start()
    stopping = Stopping()
    while not stopping.is_set:
        batches = await consumer.getmany(timeout_ms=int(_POLL_SECONDS * 1000))
        for record in (record for batch in batches.values() for record in batch):
            tell_record(record.partition, record.offset, record.value)
        if batches:
            try:
                await consumer.commit()
                tell("committed")
            except KafkaError as refused:
                tell("refused", why=repr(refused))
    await consumer.stop()


LIBRARIES: dict[str, Callable[[Options], None]] = {
    "confluent": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.group_worker", description="One consumer of a group."
    )
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--assignor", default="range")
    parser.add_argument("--session-timeout-ms", type=int, default=1500)
    parser.add_argument("--instance", help="group.instance.id: a static member")
    parser.add_argument("--client-id", default="worker")
    options = Options(**vars(parser.parse_args(arguments)))
    LIBRARIES[options.library](options)
    tell("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
