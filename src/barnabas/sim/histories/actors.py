"""The clients of a history: our producers, readers, group members and an admin, each in a process of its own.

An actor does the operations of its plan one after the other. Its process may be paused or killed; after a kill it goes
on with the next operation in a new process, with new connections, as a restarted program would. An operation that fails
is recorded and is over: whether the failure was allowed is for the checkers to say.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from barnabas.base.errors import BarnabasError, CorruptBatch
from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.broker_connection import ConnectionOptions
from barnabas.client.cluster import Cluster, ClusterOptions
from barnabas.client.configs import Resource, ResourceType, alter_configs
from barnabas.client.group.group_consumer import GroupConsumer
from barnabas.client.group.group_offsets import OffsetAndMetadata, committed_offsets
from barnabas.client.group.member_options import GroupOptions, OffsetReset, RebalanceListener
from barnabas.client.offsets import EARLIEST, end_offsets, start_offsets
from barnabas.client.producing.producer import Delivery, Producer, ProducerOptions
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.client.reading.fetched import FetchedRun
from barnabas.records.batch import Codec
from barnabas.sim.histories import plan
from barnabas.sim.histories.events import (
    Acked,
    AdminCalled,
    AdminDone,
    AdminFailed,
    CommitCalled,
    CommitDone,
    CommitFailed,
    CommittedAsked,
    CommittedSeen,
    OperationEnded,
    Owned,
    Positioned,
    ReadFailed,
    SendFailed,
    Sent,
)
from barnabas.sim.histories.plan import Actor, Operation
from barnabas.sim.histories.recorder import Recorder
from barnabas.sim.world.process import Process
from barnabas.sim.world.world import World

OPERATION_SECONDS_MAX: Final = 150.0
"""Longer than any timeout of the client: an operation that takes longer hangs."""
CLUSTER_OPTIONS: Final = ClusterOptions(
    ConnectionOptions(connect_timeout_seconds=3.0, request_timeout_seconds=8.0), retry_timeout_seconds=25.0
)
_DELIVERY_SECONDS: Final = 25.0
_FAILURES: Final = (BarnabasError, OSError, TimeoutError)


class ActorProcess:
    """An actor over all its lives."""

    def __init__(
        self, world: World, recorder: Recorder, actor: Actor, operations: list[Operation], bootstrap: str
    ) -> None:
        self.actor = actor
        self.process: Process | None = None
        self.is_done = asyncio.Event()
        self._world = world
        self._recorder = recorder
        self._operations = operations
        self._bootstrap = bootstrap
        self._next = 0
        self._lives = 0
        self._clock = world.clock()

    @property
    def name(self) -> str:
        return self.actor.name

    def start(self) -> None:
        assert self.process is None, f"{self.name} runs"
        self._lives += 1
        self.process = self._world.process(f"{self.name}/{self._lives}")
        self._world.spawn(self.process, self._live(self.process))

    def kill(self) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            self._world.network.process_ended(process)
            process.die()

    async def _live(self, process: Process) -> None:
        cluster = await self._connect()
        role = _role_of(self.actor, cluster, self._recorder)
        while self._next < len(self._operations):
            operation = self._operations[self._next]
            self._next += 1
            await asyncio.sleep(operation.pause)
            await self._perform(role, operation)
        await self._bounded("finish", role.finish())
        await self._bounded("close", cluster.close())
        self.process = None
        process.die()
        self._world.network.process_ended(process)
        self.is_done.set()

    async def _connect(self) -> Cluster:
        source = self._world.random(f"{self.name}/{self._lives}")
        while True:
            cluster = Cluster(
                self._bootstrap,
                CLUSTER_OPTIONS,
                network=self._world.network.at(self.name),
                clock=self._clock,
                source=source,
            )
            try:
                return await cluster.__aenter__()
            except _FAILURES:
                await asyncio.sleep(0.2)

    async def _perform(self, role: "_Role", operation: Operation) -> None:
        began = self._recorder.now
        await self._bounded(str(operation), role.perform(operation))
        self._recorder.add(OperationEnded(self._recorder.now, self.name, operation.action, self._recorder.now - began))

    async def _bounded(self, what: str, doing: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(OPERATION_SECONDS_MAX):
                await doing
        except TimeoutError:
            self._recorder.history.violations.append(
                f"{self.name}: {what} did not end within {OPERATION_SECONDS_MAX:g} s"
            )
        except _FAILURES as error:
            self._recorder.happened(self.name, "failed", f"{what}: {error}")


class _Role:
    """What an actor can do: a coroutine method for each action."""

    def __init__(self, name: str, cluster: Cluster, recorder: Recorder) -> None:
        self._name = name
        self._cluster = cluster
        self._recorder = recorder

    async def perform(self, operation: Operation) -> None:
        action: Callable[..., Awaitable[None]] = getattr(self, operation.action)
        await action(**operation.arguments)

    async def finish(self) -> None:
        """After the last operation."""


class _Producing(_Role):
    def __init__(self, name: str, cluster: Cluster, recorder: Recorder, options: plan.ProducerOptions) -> None:
        super().__init__(name, cluster, recorder)
        self._options = ProducerOptions(
            acks=options.acks,
            is_idempotent=options.is_idempotent,
            codec=Codec(options.codec),
            linger_seconds=options.linger_seconds,
            batch_bytes_max=options.batch_bytes,
            delivery_timeout_seconds=_DELIVERY_SECONDS,
        )
        self._producer = Producer(cluster, self._options)
        self._waiting: list[asyncio.Task[None]] = []

    async def send(
        self, topic: str, partition: int, count: int, bytes: int, keys: int, tombstones: bool, waits: bool
    ) -> None:
        deliveries: list[tuple[int, Delivery]] = []
        for index in range(count):
            number = self._recorder.number()
            value = b"%s/%d/" % (self._name.encode(), number)
            key = b"key-%d" % (number % keys) if keys else None
            content = None if tombstones and index == count - 1 else value.ljust(bytes, b".")
            place = TopicPartition(topic, partition)
            options = self._options
            self._recorder.add(
                Sent(self._recorder.now, self._name, place, key, content, options.acks, options.is_idempotent, number)
            )
            try:
                deliveries.append((number, await self._producer.send(topic, content, key=key, partition=partition)))
            except _FAILURES as error:
                self._recorder.add(SendFailed(self._recorder.now, self._name, number, str(error)))
        self._waiting = [task for task in self._waiting if not task.done()]
        settling = asyncio.ensure_future(self._settle(TopicPartition(topic, partition), deliveries))
        if waits:
            await settling
        else:
            self._waiting.append(settling)

    async def _settle(self, place: TopicPartition, deliveries: list[tuple[int, Delivery]]) -> None:
        for number, delivery in deliveries:
            try:
                delivered = await delivery
            except _FAILURES as error:
                self._recorder.add(SendFailed(self._recorder.now, self._name, number, str(error)))
            else:
                self._recorder.add(Acked(self._recorder.now, self._name, place, delivered.offset, number))

    async def finish(self) -> None:
        for task in self._waiting:
            await task
        await self._producer.close()


class _Reading(_Role):
    def __init__(self, name: str, cluster: Cluster, recorder: Recorder, options: plan.ReaderOptions) -> None:
        super().__init__(name, cluster, recorder)
        self._consumer = Consumer(
            cluster,
            ConsumerOptions(
                wait_ms_max=options.wait_ms,
                bytes_min=options.bytes_min,
                partition_bytes_max=options.partition_bytes,
                out_of_range=EARLIEST,
            ),
        )

    async def read(self, seconds: float) -> None:
        await self._assign()
        if self._consumer.is_reading:
            await _poll(self._consumer.poll, seconds, self._recorder, self._name)
        else:
            await asyncio.sleep(seconds)

    async def seek(self, topic: str, partition: int, to: str) -> None:
        await self._assign()
        place = TopicPartition(topic, partition)
        if place not in self._consumer.positions:
            return
        try:
            start = (await start_offsets(self._cluster, [place]))[place]
            end = (await end_offsets(self._cluster, [place]))[place]
        except _FAILURES as error:
            self._recorder.add(ReadFailed(self._recorder.now, self._name, str(error)))
            return
        offset = {"start": start, "end": end, "middle": (start + end) // 2}[to]
        self._consumer.seek(place, offset)
        self._recorder.add(Positioned(self._recorder.now, self._name, place, offset))

    async def _assign(self) -> None:
        """Reads every partition that there is, and drops those of deleted topics."""
        try:
            topics = await Admin(self._cluster).topics()
        except _FAILURES as error:
            self._recorder.add(ReadFailed(self._recorder.now, self._name, str(error)))
            return
        known = {
            TopicPartition(topic.name, partition.index)
            for topic in topics
            if not topic.is_internal and not topic.name.startswith("passing-")
            for partition in topic.partitions
        }
        for place in sorted(set(self._consumer.positions) - known):
            self._consumer.drop(place)
        for place in sorted(known - set(self._consumer.positions)):
            self._consumer.add(place, 0)
            self._recorder.add(Positioned(self._recorder.now, self._name, place, 0))

    async def finish(self) -> None:
        await self._consumer.close()


class _Belonging(_Role):
    """A member of a group."""

    def __init__(self, name: str, cluster: Cluster, recorder: Recorder, options: plan.MemberOptions) -> None:
        super().__init__(name, cluster, recorder)
        self._options = options
        self._consumer: GroupConsumer | None = None

    def _join(self) -> GroupConsumer:
        if self._consumer is None:
            options = self._options
            group = GroupOptions(
                options.group,
                instance_id=options.instance_id,
                assignors=options.assignors,
                session_timeout_ms=options.session_timeout_ms,
                heartbeat_interval_ms=500,
                max_poll_interval_ms=10_000,
                auto_commit_interval_ms=options.auto_commit_ms,
                auto_offset_reset=OffsetReset.EARLIEST,
                metadata_interval_ms=2_000,
                consumer=ConsumerOptions(wait_ms_max=500),
            )
            self._consumer = consumer = GroupConsumer(self._cluster, group)
            _record_commits(consumer, self._recorder, self._name, options.group)
            consumer.subscribe(options.topics, listener=_NotingListener(consumer, self._note_assigned))
        return self._consumer

    async def poll(self, seconds: float) -> None:
        consumer = self._join()
        await _poll(consumer.poll, seconds, self._recorder, self._name)

    def _note_assigned(self, consumer: GroupConsumer, new: frozenset[TopicPartition]) -> None:
        """What a rebalance brought. One without a generation was excluded in the meantime."""
        now, name = self._recorder.now, self._name
        for place in sorted(new & consumer.positions.keys()):
            self._recorder.add(Positioned(now, name, place, consumer.positions[place]))
        if consumer.generation >= 0:
            owned = tuple(sorted(consumer.assignment))
            self._recorder.add(Owned(now, name, self._options.group, consumer.member_id, consumer.generation, owned))

    async def commit(self, seconds: float) -> None:
        consumer = self._join()
        places = dict(sorted(consumer.positions.items()))
        if places:
            with suppress(*_FAILURES):  # recorded
                await consumer.commit(places)

    async def idle(self, seconds: float) -> None:
        """Does not poll for a while."""
        await asyncio.sleep(seconds)

    async def leave(self, seconds: float) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()

    async def finish(self) -> None:
        await self.leave(0.0)


class _NotingListener(RebalanceListener):
    def __init__(
        self, consumer: GroupConsumer, note_assigned: Callable[[GroupConsumer, frozenset[TopicPartition]], None]
    ) -> None:
        self._consumer = consumer
        self._note_assigned = note_assigned

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._note_assigned(self._consumer, partitions)


def _record_commits(consumer: GroupConsumer, recorder: Recorder, name: str, group: str) -> None:
    """Every commit of a member: those that it is told to make, and automatic ones."""
    membership = consumer._membership  # noqa: SLF001 - the one place that all commits pass
    commit = membership.commit

    async def recorded(
        offsets: Mapping[TopicPartition, Offset | OffsetAndMetadata], *, timeout_seconds: float | None = None
    ) -> None:
        number = recorder.number()
        places = tuple(
            (place, one.offset if isinstance(one, OffsetAndMetadata) else one) for place, one in offsets.items()
        )
        recorder.add(CommitCalled(recorder.now, name, group, places, number))
        try:
            await commit(offsets, timeout_seconds=timeout_seconds)
        except _FAILURES as error:
            recorder.add(CommitFailed(recorder.now, name, number, str(error)))
            raise
        recorder.add(CommitDone(recorder.now, name, number))

    membership.commit = recorded  # type: ignore[method-assign]


class _Administering(_Role):
    def __init__(self, name: str, cluster: Cluster, recorder: Recorder) -> None:
        super().__init__(name, cluster, recorder)
        self._admin = Admin(cluster)

    async def create_topic(self, topic: str, partitions: int, configs: tuple[tuple[str, str], ...] = ()) -> None:
        async def create() -> object:
            created = await self._admin.create_topic(topic, partitions=partitions, configs=dict(configs))
            return created.partitions

        await self._call("create_topic", create, topic=topic, partitions=partitions, configs=configs)

    async def add_partitions(self, topic: str, total: int) -> None:
        await self._call(
            "add_partitions", lambda: self._admin.create_partitions(topic, total), topic=topic, total=total
        )

    async def delete_topic(self, topic: str) -> None:
        await self._call("delete_topic", lambda: self._admin.delete_topic(topic), topic=topic)

    async def set_config(self, topic: str, name: str, value: str) -> None:
        resource = Resource(ResourceType.TOPIC, topic)
        await self._call(
            "set_config",
            lambda: alter_configs(self._cluster, resource, set_values={name: value}),
            topic=topic,
            configs=((name, value),),
        )

    async def delete_records(self, topic: str, partition: int) -> None:
        place = TopicPartition(topic, partition)

        async def delete() -> Offset:
            end = (await end_offsets(self._cluster, [place]))[place]
            return (await self._admin.delete_records({place: end}))[place]

        await self._call("delete_records", delete, topic=topic, partition=partition)

    async def list_offsets(self, topic: str) -> None:
        async def list_all() -> object:
            metadata = await self._admin.topic(topic)
            places = [TopicPartition(topic, one.index) for one in metadata.partitions]
            starts, ends = await start_offsets(self._cluster, places), await end_offsets(self._cluster, places)
            return tuple((place, starts[place], ends[place]) for place in places)

        await self._call("list_offsets", list_all, topic=topic)

    async def describe(self) -> None:
        async def describe() -> object:
            await self._admin.describe_cluster()
            await self._admin.log_directories()
            return tuple(topic.name for topic in await self._admin.topics())

        await self._call("describe", describe)

    async def committed(self, group: str) -> None:
        with suppress(*_FAILURES):
            await ask_committed(self._cluster, self._recorder, self._name, group)

    async def _call(self, action: str, call: Callable[[], Awaitable[object]], **arguments: object) -> None:
        number = self._recorder.number()
        self._recorder.add(AdminCalled(self._recorder.now, self._name, action, tuple(arguments.items()), number))
        try:
            result = await call()
        except _FAILURES as error:
            self._recorder.add(AdminFailed(self._recorder.now, self._name, number, str(error)))
        else:
            self._recorder.add(AdminDone(self._recorder.now, self._name, number, result))


async def ask_committed(cluster: Cluster, recorder: Recorder, name: str, group: str) -> None:
    """Records what a group has committed, by its coordinator."""
    number = recorder.number()
    recorder.add(CommittedAsked(recorder.now, name, group, number))
    found = await committed_offsets(cluster, group)
    offsets = tuple((place, found[place].offset) for place in sorted(found))
    recorder.add(CommittedSeen(recorder.now, name, group, offsets, number))


async def _poll(
    poll: Callable[[float], Awaitable[list[FetchedRun]]],
    seconds: float,
    recorder: Recorder,
    name: str,
) -> None:
    until = recorder.now + seconds
    while recorder.now < until:
        try:
            runs = await poll(max(0.001, until - recorder.now))
        except _FAILURES as error:
            recorder.add(ReadFailed(recorder.now, name, str(error)))
            await asyncio.sleep(0.1)
            continue
        _show_all(runs, recorder, name)


def _show_all(runs: Iterable[FetchedRun], recorder: Recorder, name: str) -> None:
    """A run that cannot be read does not take those with it that came together with it."""
    damage: CorruptBatch | None = None
    for run in runs:
        try:
            recorder.shown(name, run)
        except CorruptBatch as error:
            damage = damage or error
    if damage is not None:
        raise damage


def _role_of(actor: Actor, cluster: Cluster, recorder: Recorder) -> _Role:
    match actor.options:
        case plan.ProducerOptions() as producer:
            return _Producing(actor.name, cluster, recorder, producer)
        case plan.ReaderOptions() as reader:
            return _Reading(actor.name, cluster, recorder, reader)
        case plan.MemberOptions() as member:
            return _Belonging(actor.name, cluster, recorder, member)
        case plan.AdminOptions():
            return _Administering(actor.name, cluster, recorder)
