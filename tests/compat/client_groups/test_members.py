"""Members that come, go, stall and die share a group's partitions, also with librdkafka and over restarts."""

import asyncio
import os
import re
import signal
import threading
from collections import Counter

import confluent_kafka
import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.group.group_admin import describe_group, remove_members
from barnabas.client.group.group_consumer import GroupConsumer
from barnabas.client.group.group_offsets import committed_offsets
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.group_readers import GROUP_SETTINGS, Reader, fill, is_shared_out, options_of, places, run

# --- members ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "assignors",
    [("range",), ("roundrobin",), ("sticky",), ("cooperative-sticky",), ("cooperative-sticky", "range")],
    ids="+".join,
)
def test_members_that_come_and_go_share_everything(bootstrap: str, name: str, assignors: tuple[str, ...]) -> None:
    values = [b"%d" % number for number in range(1800)]

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=6)
        news = asyncio.Condition()
        options = options_of(name, assignors=assignors)
        await fill(cluster, name, 6, values[:600])
        readers = [Reader(cluster, options, [name], news)]
        await readers[0].until(lambda: len(readers[0].values) == 600)
        for count in (2, 3):
            readers.append(Reader(cluster, options, [name], news))
            await readers[0].until(lambda count=count: is_shared_out(name, 6, *readers[:count]))
        await fill(cluster, name, 6, values[600:1200])
        await readers[0].until(lambda: sum(len(reader.values) for reader in readers) == 1200)
        await readers[0].end()
        await readers[1].until(lambda: is_shared_out(name, 6, *readers[1:]))
        await fill(cluster, name, 6, values[1200:])
        await readers[1].until(lambda: sum(len(reader.values) for reader in readers) == 1800)
        await readers[1].end()
        await readers[2].until(
            lambda: is_shared_out(name, 6, readers[2])
        )  # a commit in the middle of a join is refused
        await readers[2].end()
        assert Counter(value for reader in readers for value in reader.values) == Counter(values)
        committed = await committed_offsets(cluster, name)
        assert {one.offset for one in committed.values()} == {300}
        assert not (await describe_group(cluster, name)).is_active
        assert all(kind != "lost" for reader in readers for kind, _ in reader.told)

    run(bootstrap, scenario)


def test_cooperative_member_keeps_what_stays_when_another_comes(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=4)
        news = asyncio.Condition()
        options = options_of(name, assignors=("cooperative-sticky",))
        first = Reader(cluster, options, [name], news)
        await first.until(lambda: len(first.consumer.assignment) == 4)
        second = Reader(cluster, options, [name], news)
        await first.until(lambda: is_shared_out(name, 4, first, second))
        revoked = [partitions for kind, partitions in first.told if kind == "revoked"]
        assert revoked == [second.consumer.assignment]
        assert first.told[0] == ("assigned", places(name, 0, 1, 2, 3))
        await second.end()
        await first.until(lambda: len(first.consumer.assignment) == 4)
        assert [partitions for kind, partitions in first.told if kind == "revoked"] == revoked
        await first.end()

    run(bootstrap, scenario)


def test_more_members_than_partitions_wait_and_take_over(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=1)
        news = asyncio.Condition()
        readers = [Reader(cluster, options_of(name), [name], news) for _ in range(2)]
        await readers[0].until(lambda: is_shared_out(name, 1, *readers) and all(one.told for one in readers))
        (owner,) = [reader for reader in readers if reader.consumer.assignment]
        (spare,) = [reader for reader in readers if not reader.consumer.assignment]
        await owner.end()
        await fill(cluster, name, 1, [b"a"])
        await spare.until(lambda: spare.values == [b"a"])
        await spare.end()

    run(bootstrap, scenario)


def test_static_member_comes_back_without_a_rebalance_and_fences_its_double(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=2)
        news = asyncio.Condition()
        readers = [Reader(cluster, options_of(name, instance_id=f"till-{n}"), [name], news) for n in range(2)]
        await readers[0].until(lambda: is_shared_out(name, 2, *readers))
        generation = max(reader.consumer.generation for reader in readers)
        await readers[0].until(lambda: readers[0].consumer.generation == generation)
        had = readers[0].consumer.assignment
        await readers[0].end()
        back = Reader(cluster, options_of(name, instance_id="till-0"), [name], news)
        await back.until(lambda: back.consumer.assignment == had)
        assert back.consumer.generation == readers[1].consumer.generation == generation
        double = Reader(cluster, options_of(name, instance_id="till-0"), [name], news)
        with pytest.raises(KafkaError) as fenced:
            await back.until(lambda: False)
        assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID
        await double.until(lambda: double.consumer.assignment == had)
        await double.end()
        await readers[1].end()

    run(bootstrap, scenario)


def test_member_that_does_not_poll_in_time_loses_its_partitions_and_returns(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=2)
        news = asyncio.Condition()
        slow = Reader(cluster, options_of(name, max_poll_interval_ms=1_500), [name], news)
        await slow.until(lambda: len(slow.consumer.assignment) == 2)
        await slow.hold()
        other = Reader(cluster, options_of(name), [name], news)
        await other.until(lambda: other.consumer.assignment == places(name, 0, 1))
        slow.may_poll.set()
        await slow.until(lambda: is_shared_out(name, 2, slow, other))
        assert [bool(partitions) for kind, partitions in slow.told if kind == "lost"] == [True]
        await slow.end()
        await other.end()

    run(bootstrap, scenario)


def test_member_that_was_removed_loses_its_partitions_and_joins_again(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=1)
        reader = Reader(cluster, options_of(name), [name], asyncio.Condition())
        await reader.until(lambda: reader.told == [("assigned", places(name, 0))])
        await remove_members(cluster, name, member_ids=[reader.consumer.member_id], reason="a test")
        await reader.until(lambda: len(reader.told) == 3)
        assert reader.told[1:] == [("lost", places(name, 0)), ("assigned", places(name, 0))]
        await reader.end()

    run(bootstrap, scenario)


def test_member_that_dies_is_missed_after_its_session(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=2)
        news = asyncio.Condition()
        # A static one does not leave when it is closed: to the coordinator that is the same as death.
        dying = Reader(cluster, options_of(name, instance_id="till", session_timeout_ms=300), [name], news)
        await dying.until(lambda: len(dying.consumer.assignment) == 2)
        other = Reader(cluster, options_of(name), [name], news)
        await other.until(lambda: is_shared_out(name, 2, dying, other))
        await dying.die()
        await other.until(lambda: other.consumer.assignment == places(name, 0, 1))
        await other.end()

    run(bootstrap, scenario)


# --- topics that change -----------------------------------------------------------------------------------------------


def test_new_partitions_and_topics_that_match_are_found(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        admin = Admin(cluster)
        await admin.create_topic(f"{name}-a", partitions=1)
        options = options_of(name, metadata_interval_ms=50)
        async with GroupConsumer(cluster, options) as consumer:
            consumer.subscribe(pattern=re.compile(re.escape(name) + "-[ab]"))

            async def until(*wanted: frozenset[TopicPartition]) -> None:
                while consumer.assignment != frozenset().union(*wanted):
                    await consumer.poll(0.02)

            await until(places(f"{name}-a", 0))
            await admin.create_topic(f"{name}-c", partitions=1)
            await admin.create_topic(f"{name}-b", partitions=1)
            await until(places(f"{name}-a", 0), places(f"{name}-b", 0))
            await admin.create_partitions(f"{name}-a", 3)
            await until(places(f"{name}-a", 0, 1, 2), places(f"{name}-b", 0))
            await admin.delete_topic(f"{name}-b")
            await until(places(f"{name}-a", 0, 1, 2))
            consumer.subscribe([f"{name}-c"])
            await until(places(f"{name}-c", 0))

    run(bootstrap, scenario)


def test_signal_ends_the_loop_and_leaves_the_group(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=1)
        await fill(cluster, name, 1, [b"a"])
        loop = asyncio.get_running_loop()
        async with GroupConsumer(cluster, options_of(name)) as consumer:
            consumer.subscribe([name])
            loop.add_signal_handler(signal.SIGTERM, consumer.stop)
            try:
                async for record in consumer.records():
                    assert record.value == b"a"
                    os.kill(os.getpid(), signal.SIGTERM)
            finally:
                loop.remove_signal_handler(signal.SIGTERM)
        assert not (await describe_group(cluster, name)).is_active
        assert (await committed_offsets(cluster, name))[TopicPartition(name, 0)].offset == 1

    run(bootstrap, scenario)


# --- with others ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_members_of_librdkafka_and_ours_share_a_group(bootstrap: str, name: str, assignor: str) -> None:
    values = [b"%d" % number for number in range(1200)]

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=6)
        news = asyncio.Condition()
        options = options_of(name, assignors=(assignor,))
        first = Reader(cluster, options, [name], news)
        await first.until(lambda: len(first.consumer.assignment) == 6)
        theirs = _Theirs(bootstrap, name, assignor)
        thread = asyncio.create_task(asyncio.to_thread(theirs.read))
        await first.until(lambda: len(first.consumer.assignment) == 3 and len(theirs.assigned) == 3)
        second = Reader(cluster, options, [name], news)
        await first.until(
            lambda: len(first.consumer.assignment) == len(second.consumer.assignment) == len(theirs.assigned) == 2
        )
        await fill(cluster, name, 6, values)
        await first.until(lambda: len(first.values) + len(second.values) + len(theirs.values) >= len(values))
        await first.end()  # theirs may lead now
        await second.until(lambda: len(second.consumer.assignment) == 3 and len(theirs.assigned) == 3)
        theirs.is_ending.set()
        await thread
        await second.until(lambda: len(second.consumer.assignment) == 6)
        await second.end()
        assert Counter([*first.values, *second.values, *theirs.values]) == Counter(values)

    run(bootstrap, scenario)


class _Theirs:
    """A member of librdkafka's, in a thread of its own."""

    def __init__(self, bootstrap: str, name: str, assignor: str) -> None:
        self.values: list[bytes | None] = []
        self.assigned: list[confluent_kafka.TopicPartition] = []
        self.is_ending = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "partition.assignment.strategy": assignor,
                "heartbeat.interval.ms": 50,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([name])

    def read(self) -> None:
        while not self.is_ending.is_set():
            message = self._consumer.poll(0.02)
            if message is not None and message.error() is None:
                self.values.append(message.value())
            self.assigned = self._consumer.assignment()
        self._consumer.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_members_live_through_restarts_of_the_coordinator_without_a_rebalance(end: str) -> None:
    values = [b"%d" % number for number in range(300)]

    async def scenario(broker: Broker, cluster: Cluster) -> None:
        await Admin(cluster).create_topic("orders", partitions=4)
        news = asyncio.Condition()
        readers = [Reader(cluster, options_of("billing"), ["orders"], news) for _ in range(2)]
        await readers[0].until(lambda: is_shared_out("orders", 4, *readers))
        generations = [reader.consumer.generation for reader in readers]
        await fill(cluster, "orders", 4, values[:100])
        for step in (100, 200):
            await readers[0].until(lambda step=step: sum(len(reader.values) for reader in readers) >= step)
            await asyncio.to_thread(getattr(broker, end))
            await asyncio.to_thread(broker.start)
            await fill(cluster, "orders", 4, values[step : step + 100])
        await readers[0].until(lambda: {one for reader in readers for one in reader.values} == set(values))
        assert [reader.consumer.generation for reader in readers] == generations
        for reader in readers:
            await reader.end()
        assert {one.offset for one in (await committed_offsets(cluster, "billing")).values()} == {75}

    with Broker(GROUP_SETTINGS) as broker:
        run(broker.bootstrap, lambda cluster: scenario(broker, cluster))
