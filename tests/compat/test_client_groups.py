"""Our client's groups: the same against Barnabas and against Apache Kafka, and together with other people's members."""

import asyncio
import itertools
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any

import confluent_kafka
import pytest
import uvloop

from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.blocking import BlockingClient
from barnabas.client.cluster import Cluster
from barnabas.client.errors import UnknownTopic
from barnabas.client.group.group_admin import (
    delete_group,
    delete_groups,
    describe_group,
    describe_groups,
    list_groups,
    remove_members,
)
from barnabas.client.group.group_consumer import GroupConsumer
from barnabas.client.group.group_offsets import (
    OffsetAndMetadata,
    commit_offsets,
    committed_offsets,
    committed_offsets_of,
    delete_offsets,
)
from barnabas.client.group.member_options import GroupOptions, NoCommittedOffset, OffsetReset, RebalanceListener
from barnabas.client.producing.producer import Producer
from barnabas.client.reading.consumer import ConsumerOptions
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.kafka import KafkaNode

PATIENCE_SECONDS = 60
GROUP_SETTINGS = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}
READER = "reader"
_numbers = itertools.count()


@pytest.fixture(scope="module", params=["barnabas", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of each kind, one for all tests here: each has topics and groups of its own."""
    if request.param == "barnabas":
        with Broker(GROUP_SETTINGS) as broker:
            yield broker.bootstrap
        return
    request.getfixturevalue("kafka")
    with KafkaNode(tmp_path_factory.mktemp("kafka"), GROUP_SETTINGS) as node:
        yield node.bootstrap_servers


@pytest.fixture
def name() -> str:
    """Of a topic and a group that no other test uses."""
    return f"orders-{next(_numbers)}"


def run(bootstrap: str, scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), Cluster(bootstrap) as cluster:
            try:
                await scenario(cluster)
            finally:
                await end_readers()

    uvloop.run(bounded())


async def end_readers() -> None:
    """Those that a failed test left behind."""
    left = [task for task in asyncio.all_tasks() if task.get_name() == READER]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def options_of(group: str, **changes: Any) -> GroupOptions:
    """Quick to notice what happens, from the beginning of the topic on."""
    quick = GroupOptions(
        group,
        heartbeat_interval_ms=20,
        auto_commit_interval_ms=50,
        auto_offset_reset=OffsetReset.EARLIEST,
        consumer=ConsumerOptions(wait_ms_max=50),
    )
    return replace(quick, **changes)


def places(topic: str, *indexes: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, index) for index in indexes)


async def fill(cluster: Cluster, topic: str, partitions: int, values: Sequence[bytes]) -> None:
    async with Producer(cluster) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, partition=number % partitions)


class Reader(RebalanceListener):
    """A member in a task of its own, which keeps what it reads and hears. `until` waits for a fact about members."""

    def __init__(self, cluster: Cluster, options: GroupOptions, topics: Sequence[str], news: asyncio.Condition) -> None:
        self.consumer = GroupConsumer(cluster, options)
        self.consumer.subscribe(topics, listener=self)
        self.values: list[bytes | None] = []
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.may_poll = asyncio.Event()
        self.may_poll.set()
        self._news = news
        self._task = asyncio.create_task(self._read(), name=READER)

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("assigned", partitions))

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("revoked", partitions))

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("lost", partitions))

    async def _read(self) -> None:
        async with self.consumer:
            while not self.consumer.is_stopped:
                for one in await self.consumer.poll(0.05):
                    self.values += [record.value for record in one.records()]
                async with self._news:
                    self._news.notify_all()
                await self.may_poll.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._news:
            await self._news.wait_for(lambda: condition() or self._task.done())
        if self._task.done():
            self._task.result()
        assert condition()

    async def end(self) -> None:
        self.consumer.stop()
        await self._task

    async def die(self) -> None:
        """Without a word to the coordinator."""
        self._task.cancel()
        await asyncio.wait([self._task])


def is_shared_out(topic: str, partitions: int, *readers: Reader) -> bool:
    """Whether everything has one owner, and everybody has as much as anybody."""
    owners = Counter(one for reader in readers for one in reader.consumer.assignment)
    sizes = [len(reader.consumer.assignment) for reader in readers]
    return owners == Counter(places(topic, *range(partitions))) and max(sizes) - min(sizes) <= 1


# --- what an operator does --------------------------------------------------------------------------------------------


def test_offsets_of_a_group_without_members_are_committed_read_and_deleted(bootstrap: str, name: str) -> None:
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=2)
        assert await committed_offsets(cluster, name) == {}
        await commit_offsets(cluster, name, {first: 5, second: OffsetAndMetadata(7, "half way", 3)})
        both = {first: OffsetAndMetadata(5), second: OffsetAndMetadata(7, "half way", 3)}
        assert await committed_offsets(cluster, name) == both
        assert await committed_offsets(cluster, name, [first]) == {first: OffsetAndMetadata(5)}
        many = [f"{name}-nobody", name]
        assert await committed_offsets_of(cluster, many) == {many[0]: {}, name: both}
        assert await delete_offsets(cluster, name, [first]) == {first: None}
        assert await committed_offsets(cluster, name, [first, second]) == {second: both[second]}
        (listed,) = [one for one in await list_groups(cluster) if one.group == name]
        assert (listed.protocol_type, listed.state, listed.kind) == ("", "Empty", "classic")
        assert await delete_groups(cluster, [name]) == {name: None}
        assert await committed_offsets(cluster, name) == {}
        assert await describe_groups(cluster, [name]) == {name: None}

    run(bootstrap, scenario)


def test_offsets_of_a_topic_that_was_made_anew_begin_anew(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        admin = Admin(cluster)
        for offset in (5, 6):
            await admin.create_topic(name, partitions=1)
            await commit_offsets(cluster, name, {TopicPartition(name, 0): offset})
            assert (await committed_offsets(cluster, name))[TopicPartition(name, 0)].offset == offset
            await admin.delete_topic(name)

    run(bootstrap, scenario)


def test_operations_on_what_is_not_there_are_refused_with_a_reason(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=1)
        with pytest.raises(UnknownTopic, match="topic 'nobody-made-it' does not exist"):
            await commit_offsets(cluster, name, {TopicPartition("nobody-made-it", 0): 1})
        with pytest.raises(UnknownTopic, match=f"partition {name}-9 does not exist"):
            await commit_offsets(cluster, name, {TopicPartition(name, 9): 1})
        for refused in (
            describe_group(cluster, "nobody"),
            delete_group(cluster, "nobody"),
            delete_offsets(cluster, "nobody", [TopicPartition(name, 0)]),
        ):
            with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND: group 'nobody' does not exist"):
                await refused

    run(bootstrap, scenario)


def test_group_with_members_is_described_and_protected(bootstrap: str, name: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=2)
        reader = Reader(cluster, options_of(name, instance_id="till-1"), [name], asyncio.Condition())
        await reader.until(lambda: len(reader.consumer.assignment) == 2)
        described = await describe_group(cluster, name)
        (member,) = described.members
        assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
        assert (described.kind, described.is_active, described.are_members_known) == ("classic", True, True)
        assert (member.member_id, member.instance_id) == (reader.consumer.member_id, "till-1")
        assert (member.client_id, member.host) == ("barnabas", "/127.0.0.1")
        assert set(member.assignment) == places(name, 0, 1)
        assert member.subscription is not None
        assert member.subscription.topics == (name,)
        assert [one.group for one in await list_groups(cluster, states=["Stable"], kinds=["classic"])] == [name]
        for refused in (commit_offsets(cluster, name, {TopicPartition(name, 0): 0}), delete_group(cluster, name)):
            with pytest.raises(KafkaError, match=f"NON_EMPTY_GROUP: group '{name}' has active members"):
                await refused
        (problem,) = (await delete_offsets(cluster, name, [TopicPartition(name, 0)])).values()
        assert problem is not None
        assert problem.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        await reader.end()  # a static member: it stays until it is removed, or its session is over
        assert (await describe_group(cluster, name)).is_active
        removed = await remove_members(cluster, name, instance_ids=["till-1", "till-2"])
        assert removed["till-1"] is None
        assert removed["till-2"] is not None
        assert removed["till-2"].code is ErrorCode.UNKNOWN_MEMBER_ID
        assert not (await describe_group(cluster, name)).is_active
        await delete_group(cluster, name)

    run(bootstrap, scenario)


@pytest.mark.kafka
def test_groups_of_kafkas_new_protocol_are_told_as_what_they_are(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    request.getfixturevalue("kafka")
    with KafkaNode(tmp_path_factory.mktemp("kafka"), GROUP_SETTINGS) as node:

        async def scenario(cluster: Cluster) -> None:
            await Admin(cluster).create_topic("orders", partitions=1)
            other = confluent_kafka.Consumer(
                {"bootstrap.servers": node.bootstrap_servers, "group.id": "modern", "group.protocol": "consumer"}
            )
            other.subscribe(["orders"])
            await asyncio.to_thread(_poll_until_assigned, other)
            (listed,) = await list_groups(cluster)
            assert (listed.group, listed.kind, listed.state) == ("modern", "consumer", "Stable")
            described = await describe_group(cluster, "modern")
            assert (described.kind, described.is_active, described.are_members_known) == ("consumer", True, False)
            with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
                await commit_offsets(cluster, "modern", {TopicPartition("orders", 0): 0})
            await asyncio.to_thread(other.close)

        run(node.bootstrap_servers, scenario)


def _poll_until_assigned(consumer: confluent_kafka.Consumer) -> None:
    while not consumer.assignment():
        consumer.poll(0.05)


def test_blocking_client_commits_and_reads_offsets(bootstrap: str, name: str) -> None:
    with BlockingClient(bootstrap) as client:
        client.create_topic(name, partitions=1)
        client.commit_offsets(name, {TopicPartition(name, 0): 3})
        assert client.committed_offsets(name) == {TopicPartition(name, 0): OffsetAndMetadata(3)}


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
        slow = Reader(cluster, options_of(name, max_poll_interval_ms=200), [name], news)
        await slow.until(lambda: len(slow.consumer.assignment) == 2)
        slow.may_poll.clear()
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


# --- where it begins, and what is committed ---------------------------------------------------------------------------


def test_partitions_without_an_offset_begin_where_the_option_says(bootstrap: str, name: str) -> None:
    place = TopicPartition(name, 0)

    class Seeking(RebalanceListener):
        async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            for partition in partitions:
                consumer.seek(partition, 2)

    async def scenario(cluster: Cluster) -> None:
        nonlocal consumer
        await Admin(cluster).create_topic(name, partitions=1)
        await fill(cluster, name, 1, [b"a", b"b", b"c"])
        async with GroupConsumer(cluster, options_of(f"{name}-1")) as consumer:
            consumer.subscribe([name])
            (first,) = await consumer.poll()
            assert [record.value for record in first.records()] == [b"a", b"b", b"c"]
        latest = options_of(f"{name}-2", auto_offset_reset=OffsetReset.LATEST)
        async with GroupConsumer(cluster, latest) as consumer:
            consumer.subscribe([name])
            while not consumer.assignment:
                assert await consumer.poll(0.02) == []
            assert consumer.positions == {place: 3}
        none = options_of(f"{name}-3", auto_offset_reset=OffsetReset.NONE)
        async with GroupConsumer(cluster, none) as consumer:
            consumer.subscribe([name])
            with pytest.raises(NoCommittedOffset, match=f"group '{name}-3' has no committed offset of {name}-0"):
                await consumer.poll()
            consumer.seek(place, 1)
            (first,) = await consumer.poll()
            assert first.first_offset == 1
        async with GroupConsumer(cluster, replace(none, group=f"{name}-4")) as consumer:
            consumer.subscribe([name], listener=Seeking())
            (first,) = await consumer.poll()
            assert first.first_offset == 2

    consumer: GroupConsumer
    run(bootstrap, scenario)


def test_commits_cover_what_was_handed_out_and_survive_the_member(bootstrap: str, name: str) -> None:
    place = TopicPartition(name, 0)

    async def committed(cluster: Cluster) -> int | None:
        found = (await committed_offsets(cluster, name)).get(place)
        return None if found is None else found.offset

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=1)
        await fill(cluster, name, 1, [b"%d" % number for number in range(10)])
        manual = options_of(name, auto_commit_interval_ms=None)
        async with GroupConsumer(cluster, manual) as consumer:
            consumer.subscribe([name])
            (first,) = await consumer.poll()
            assert await committed(cluster) is None
            await consumer.commit({place: OffsetAndMetadata(4, "four")})
        assert await committed(cluster) == 4
        async with GroupConsumer(cluster, manual) as consumer:
            consumer.subscribe([name])
            (first,) = await consumer.poll()
            assert first.first_offset == 4
            await consumer.commit()
        assert await committed(cluster) == 10
        with pytest.raises(KafkaError) as refused:
            await consumer.commit({place: 1})
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID

    run(bootstrap, scenario)


def test_commit_is_not_taken_back_by_the_end(bootstrap: str, name: str) -> None:
    place = TopicPartition(name, 0)

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=1)
        await fill(cluster, name, 1, [b"a", b"b", b"c"])

        async def commit_and_fail(offsets: dict[TopicPartition, int] | None) -> None:
            async with GroupConsumer(cluster, options_of(name)) as consumer:
                consumer.subscribe([name])
                assert await consumer.poll()
                await consumer.commit(offsets)
                raise ZeroDivisionError

        for offsets, committed in (({place: 2}, 2), (None, 3)):
            with pytest.raises(ZeroDivisionError):
                await commit_and_fail(offsets)
            assert (await committed_offsets(cluster, name))[place].offset == committed

    run(bootstrap, scenario)


def test_records_that_were_not_processed_come_again(bootstrap: str, name: str) -> None:
    place = TopicPartition(name, 0)

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=1)
        await fill(cluster, name, 1, [b"%d" % number for number in range(10)])
        options = options_of(name)

        async def fail_at_six() -> None:
            async with GroupConsumer(cluster, options) as consumer:
                consumer.subscribe([name])
                async for record in consumer.records():
                    if record.offset == 6:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail_at_six()
        assert (await committed_offsets(cluster, name))[place].offset == 6
        async with GroupConsumer(cluster, options) as consumer:
            consumer.subscribe([name])
            async for record in consumer.records():
                if record.offset == 8:
                    break
        assert (await committed_offsets(cluster, name))[place].offset == 9
        async with GroupConsumer(cluster, options) as consumer:
            consumer.subscribe([name])
            values = [[record.value for record in one.records()] for one in await consumer.poll()]
            assert values == [[b"9"]]
            assert await consumer.poll(0.2) == []  # longer than the interval: it was committed while poll waited
            assert (await committed_offsets(cluster, name))[place].offset == 10

    run(bootstrap, scenario)


def test_paused_partitions_wait_until_they_are_resumed(bootstrap: str, name: str) -> None:
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=2)
        async with GroupConsumer(cluster, options_of(name)) as consumer:
            consumer.subscribe([name])
            while not consumer.assignment:
                assert await consumer.poll(0.02) == []
            consumer.pause([first])
            await fill(cluster, name, 2, [b"a", b"b"])
            assert [one.partition for one in await consumer.poll()] == [second]
            assert await consumer.poll(0.1) == []
            consumer.pause([second])
            assert await consumer.poll(0.05) == []
            assert consumer.paused == {first, second}
            consumer.resume([first])
            assert [one.partition for one in await consumer.poll()] == [first]
            assert consumer.generation == 1

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
