"""The clients of a scenario: production clients, each in a process of its own, that do what the page tells them.

A client has a queue of jobs, which its process does one after the other. A kill drops the process with its jobs; a new
start begins with new connections, as a restarted program would. What a client learns goes into the history and into
its own lists, where `expect` looks at it; a list stays when the process dies.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.configs import Resource, ResourceType, alter_configs
from barnabas.client.group.group_consumer import GroupConsumer
from barnabas.client.group.member_options import GroupOptions, OffsetReset, RebalanceListener
from barnabas.client.producing.producer import Delivery, Producer, ProducerOptions
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.client.reading.fetched import FetchedRun
from barnabas.sim.histories.actors import CLUSTER_OPTIONS
from barnabas.sim.histories.events import (
    Acked,
    AdminCalled,
    AdminDone,
    AdminFailed,
    CommitCalled,
    CommitDone,
    CommitFailed,
    Owned,
    Positioned,
    ReadFailed,
    SendFailed,
    Sent,
)
from barnabas.sim.histories.recorder import Recorder, shown_records
from barnabas.sim.scenarios.slots import Item
from barnabas.sim.world.process import Process
from barnabas.sim.world.world import World

Job = Callable[[], Awaitable[None]]

_FAILURES: Final = (BarnabasError, OSError, TimeoutError)
_PADDING: Final = "."
_POLL_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 0.2
_HEARTBEAT_MS: Final = 500
_METADATA_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Place:
    """What a client needs of the world."""

    world: World
    recorder: Recorder
    bootstrap: Callable[[], str]
    """The addresses of all brokers."""


class Client:
    def __init__(self, place: Place, name: str) -> None:
        self.name = name
        self.process: Process | None = None
        self._place = place
        self._recorder = place.recorder
        self._clock = place.world.clock()
        self._lives = 0
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()

    def start(self) -> None:
        assert self.process is None, f"{self.name} runs"
        self._lives += 1
        self._jobs = asyncio.Queue()
        self.process = self._place.world.process(f"{self.name}/{self._lives}")
        self._place.world.spawn(self.process, self._live())

    def kill(self) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            self._place.world.network.process_ended(process)
            process.die()

    def ask(self, job: Job) -> None:
        """Has its process do this, after what it was asked before."""
        self._jobs.put_nowait(job)

    async def _live(self) -> None:
        cluster = await self._connect()
        await self._work(cluster)

    async def _connect(self) -> Cluster:
        world = self._place.world
        source = world.random(f"{self.name}/{self._lives}")
        while True:
            network = world.network.at(self.name)
            cluster = Cluster(
                self._place.bootstrap(), CLUSTER_OPTIONS, network=network, clock=self._clock, source=source
            )
            try:
                return await cluster.__aenter__()
            except _FAILURES:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _work(self, cluster: Cluster) -> None:
        raise NotImplementedError


# Producers


@dataclass(slots=True)
class Sending:
    """A record on its way."""

    item: Item
    partition: TopicPartition
    offset: Offset | None = None
    """Where it is, once it is acknowledged."""
    error: str | None = None
    is_failure_expected: bool = False

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.item} failed: {self.error}"
        return f"{self.item} waits" if self.offset is None else f"{self.item} acked at {self.offset}"

    @property
    def is_settled(self) -> bool:
        return self.offset is not None or self.error is not None


class ProducingClient(Client):
    def __init__(self, place: Place, name: str, options: ProducerOptions) -> None:
        super().__init__(place, name)
        self.sendings: list[Sending] = []
        self._options = options
        self._producer: Producer
        self._settling: list[asyncio.Task[None]] = []

    def send(self, partition: TopicPartition, items: Sequence[Item], size: int) -> list[Sending]:
        sendings = [Sending(item, partition) for item in items]
        self.sendings += sendings
        self.ask(lambda: self._send(sendings, size))
        return sendings

    async def _work(self, cluster: Cluster) -> None:
        self._producer = Producer(cluster, self._options)
        while True:
            await (await self._jobs.get())()

    async def _send(self, sendings: Sequence[Sending], size: int) -> None:
        under_way: list[tuple[Sending, int, Delivery]] = []
        for sending in sendings:
            (topic, index), recorder = sending.partition, self._recorder
            key, value = encoded(sending.item, size)
            number = recorder.number()
            acks, is_idempotent = self._options.acks, self._options.is_idempotent
            sent = Sent(recorder.now, self.name, sending.partition, key, value, acks, is_idempotent, number)
            recorder.add(sent)
            try:
                delivery = await self._producer.send(topic, value, key=key, partition=index)
            except _FAILURES as error:
                self._failed(sending, number, error)
            else:
                under_way.append((sending, number, delivery))
        self._settling.append(asyncio.ensure_future(self._settle(under_way)))

    async def _settle(self, under_way: Sequence[tuple[Sending, int, Delivery]]) -> None:
        for sending, number, delivery in under_way:
            try:
                delivered = await delivery
            except _FAILURES as error:
                self._failed(sending, number, error)
            else:
                sending.offset = delivered.offset
                recorder = self._recorder
                recorder.add(Acked(recorder.now, self.name, sending.partition, delivered.offset, number))

    def _failed(self, sending: Sending, number: int, error: BaseException) -> None:
        sending.error = describe(error)
        self._recorder.add(SendFailed(self._recorder.now, self.name, number, str(error)))


# Readers


class ReadingClient(Client):
    """Reads one partition, all the time."""

    def __init__(
        self, place: Place, name: str, partition: TopicPartition | None, offset: Offset, wait_ms: int = 500
    ) -> None:
        super().__init__(place, name)
        self.read: list[Item] = []
        """All that it was shown."""
        self.expected = 0
        """How many of these an `expect` has seen."""
        self.failures: list[str] = []
        self._partition = partition
        self._offset = offset
        self._wait_ms = wait_ms

    async def _work(self, cluster: Cluster) -> None:
        assert self._partition is not None
        consumer = Consumer(cluster, ConsumerOptions(wait_ms_max=self._wait_ms))
        consumer.assign({self._partition: self._offset})
        self._recorder.add(Positioned(self._recorder.now, self.name, self._partition, self._offset))
        while True:
            await self._poll(consumer.poll)

    async def _poll(self, poll: Callable[[float], Awaitable[list[FetchedRun]]]) -> None:
        try:
            for run in await poll(_POLL_SECONDS):
                self._recorder.shown(self.name, run)
                self.read += [decoded(record.key, record.value) for record in shown_records(run)]
        except _FAILURES as error:
            self.failures.append(describe(error))
            self._recorder.add(ReadFailed(self._recorder.now, self.name, str(error)))
            await asyncio.sleep(_POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class Membership:
    group: str
    topic: str
    instance_id: str | None
    session_timeout_ms: int


class MemberClient(ReadingClient):
    """Polls until it is told to leave. It commits only when it is told to."""

    def __init__(self, place: Place, name: str, membership: Membership) -> None:
        super().__init__(place, name, None, 0)
        self.membership = membership
        self.owned: tuple[int, tuple[TopicPartition, ...]] = (-1, ())
        """Generation and partitions."""
        self.answers = 0
        """How many jobs it has done."""
        self._consumer: GroupConsumer | None = None

    def kill(self) -> None:
        super().kill()
        self.owned = (-1, ())

    def commit(self) -> None:
        self.ask(self._commit)

    def leave(self) -> None:
        self.ask(self._leave)

    async def _work(self, cluster: Cluster) -> None:
        wanted = self.membership
        options = GroupOptions(
            wanted.group,
            instance_id=wanted.instance_id,
            assignors=("range",),
            session_timeout_ms=wanted.session_timeout_ms,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            auto_commit_interval_ms=None,
            auto_offset_reset=OffsetReset.EARLIEST,
            metadata_interval_ms=_METADATA_MS,
            consumer=ConsumerOptions(wait_ms_max=200),
        )
        consumer = self._consumer = GroupConsumer(cluster, options)
        consumer.subscribe([wanted.topic], listener=_Positions(self, consumer))
        while self._consumer is not None:
            await self._poll(consumer.poll)
            self._note_ownership(consumer)
            if not self._jobs.empty():
                await self._jobs.get_nowait()()
                self.answers += 1
        await cluster.close()

    def begins(self, partition: TopicPartition, offset: Offset) -> None:
        """It was assigned a partition, and begins there."""
        self._recorder.add(Positioned(self._recorder.now, self.name, partition, offset))

    def _note_ownership(self, consumer: GroupConsumer) -> None:
        owned = (consumer.generation, tuple(sorted(consumer.assignment)))
        if owned == self.owned:
            return
        self.owned = owned
        if consumer.member_id and consumer.generation >= 0:
            recorder = self._recorder
            recorder.add(Owned(recorder.now, self.name, self.membership.group, consumer.member_id, *owned))

    async def _commit(self) -> None:
        assert self._consumer is not None
        recorder, number = self._recorder, self._recorder.number()
        places = dict(sorted(self._consumer.positions.items()))
        group = self.membership.group
        recorder.add(CommitCalled(recorder.now, self.name, group, tuple(places.items()), number))
        try:
            await self._consumer.commit(places)
        except _FAILURES as error:
            self.failures.append(describe(error))
            recorder.add(CommitFailed(recorder.now, self.name, number, str(error)))
        else:
            recorder.add(CommitDone(recorder.now, self.name, number))

    async def _leave(self) -> None:
        assert self._consumer is not None
        consumer, self._consumer = self._consumer, None
        await consumer.close()
        self.owned = (-1, ())


class _Positions(RebalanceListener):
    """Tells a member where it begins."""

    def __init__(self, member: MemberClient, consumer: GroupConsumer) -> None:
        self._member = member
        self._consumer = consumer

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        for partition in sorted(partitions):
            self._member.begins(partition, self._consumer.positions[partition])


# The admin


class AdminClient(Client):
    """One call after the other; each leaves its error, or None."""

    def __init__(self, place: Place, name: str) -> None:
        super().__init__(place, name)
        self.errors: list[str | None] = []
        self._cluster: Cluster

    def create_topic(
        self,
        topic: str,
        partitions: int,
        configs: tuple[tuple[str, str], ...],
        assignments: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        async def create() -> object:
            created = await Admin(self._cluster).create_topic(
                topic, partitions=partitions, assignments=assignments, configs=dict(configs)
            )
            return created.partitions

        self._call("create_topic", create, topic=topic, partitions=partitions, configs=configs)

    def delete_topic(self, topic: str) -> None:
        self._call("delete_topic", lambda: Admin(self._cluster).delete_topic(topic), topic=topic)

    def add_partitions(self, topic: str, total: int) -> None:
        self._call(
            "add_partitions", lambda: Admin(self._cluster).create_partitions(topic, total), topic=topic, total=total
        )

    def set_config(self, topic: str, configs: tuple[tuple[str, str], ...]) -> None:
        resource = Resource(ResourceType.TOPIC, topic)
        self._call(
            "set_config",
            lambda: alter_configs(self._cluster, resource, set_values=dict(configs)),
            topic=topic,
            configs=configs,
        )

    def delete_records(self, partition: TopicPartition, offset: Offset) -> None:
        self._call(
            "delete_records",
            lambda: Admin(self._cluster).delete_records({partition: offset}),
            topic=partition.topic,
            partition=partition.partition,
        )

    async def _work(self, cluster: Cluster) -> None:
        self._cluster = cluster
        while True:
            await (await self._jobs.get())()

    def _call(self, action: str, call: Callable[[], Awaitable[object]], **arguments: object) -> None:
        async def perform() -> None:
            recorder, number = self._recorder, self._recorder.number()
            recorder.add(AdminCalled(recorder.now, self.name, action, tuple(arguments.items()), number))
            try:
                result = await call()
            except _FAILURES as error:
                recorder.add(AdminFailed(recorder.now, self.name, number, str(error)))
                self.errors.append(describe(error))
            else:
                recorder.add(AdminDone(recorder.now, self.name, number, result))
                self.errors.append(None)

        self.ask(perform)


# Records on a page and in a log


def encoded(item: Item, size: int) -> tuple[bytes | None, bytes | None]:
    """Key and value, padded to a size."""
    key = None if item.key is None else item.key.encode()
    value = None if item.value is None else item.value.ljust(size, _PADDING).encode()
    return key, value


def decoded(key: bytes | None, value: bytes | None) -> Item:
    return Item(
        None if key is None else key.decode(errors="replace"),
        None if value is None else value.decode(errors="replace").rstrip(_PADDING),
    )


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
