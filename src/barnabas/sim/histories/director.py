"""Runs a plan: builds the world, lets actors and faults loose on it, and looks at what is left when all is healed.

The end of a history is always the same: faults are over, every link and disk is healed, the broker is stopped in order
and started once more, everything is read from the start to the end, the broker is stopped again, and `log verify` reads
its disks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from zlib import crc32

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.configs import ConfigSource, Resource, ResourceType, describe_configs
from barnabas.client.offsets import end_offsets, start_offsets
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.controller.history import Place
from barnabas.metadata.image import ClusterImage
from barnabas.sim.histories.actors import CLUSTER_OPTIONS, ActorProcess, ask_committed
from barnabas.sim.histories.chaos import Chaos
from barnabas.sim.histories.cluster_watch import ClusterWatch
from barnabas.sim.histories.events import (
    AdminCalled,
    AdminDone,
    CommitCalled,
    FinalLog,
    FinalTopic,
    History,
    ImageSeen,
    NotHealed,
    ShownRecord,
)
from barnabas.sim.histories.final_disks import read_disks
from barnabas.sim.histories.plan import Plan
from barnabas.sim.histories.recorder import Recorder, shown_records
from barnabas.sim.world.node import BrokerNode
from barnabas.sim.world.world import World
from barnabas.sim.world.zookeeper import SimulatedZooKeeper

_Task = Callable[[Cluster], Awaitable[None]]

HISTORY_SECONDS_MAX: Final = 1800.0
HEALING_SECONDS_MAX: Final = 60.0
"""How long a cluster may take, after the last fault, until everything is as it should be."""
_LOOK_SECONDS: Final = 0.1
_DIRECTOR: Final = "director"


@dataclass(frozen=True, slots=True)
class Outcome:
    history: History
    trace: str
    events: int
    seconds: float
    """Virtual ones."""


class Director:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(plan.seed, seconds_max=HISTORY_SECONDS_MAX)
        self.recorder = Recorder(self.world)
        self._watch = ClusterWatch(self.recorder)
        self._nodes: list[BrokerNode] = []
        self._zookeeper: SimulatedZooKeeper | None = None
        """Of a cluster; a broker on its own has none."""
        self._actors: list[ActorProcess] = []

    def run(self) -> Outcome:
        history = self.recorder.history
        try:
            self.world.run(self._direct())
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this history has found
            history.violations.append(f"the history did not come to its end: {type(error).__name__}: {error}")
        else:
            history.is_complete = True
        return Outcome(history, self.world.trace, self.world.events, self.world.loop.time())

    async def _direct(self) -> None:
        plan, world = self.plan, self.world
        loop = world.loop
        if plan.brokers > 1:
            self._make_ensemble()
        zookeeper = self._zookeeper
        self._nodes = [
            self._make_node(number, plan.settings, plan.directories) for number in range(1, plan.brokers + 1)
        ]
        for node in self._nodes:
            node.start()
        for node in self._nodes:
            if not await node.until_serving():
                raise RuntimeError(f"{node.name} does not start: {node.exit_reason}")
        await self._as_director(self._create_topics)
        bootstrap = ",".join(node.bootstrap for node in self._nodes)
        for actor in plan.actors:
            own = [one for one in plan.operations if one.actor == actor.name]
            self._actors.append(ActorProcess(world, self.recorder, actor, own, bootstrap))
        chaos = Chaos(world, self.recorder, self._nodes, self._actors, zookeeper)
        background = [loop.create_task(chaos.keep_running(node)) for node in self._nodes]
        background += [loop.create_task(chaos.strike(fault)) for fault in plan.faults]
        for one in self._actors:
            one.start()
        for one in self._actors:
            await one.is_done.wait()
        chaos.is_over = True
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        self.world.network.look_for_unanswered()
        await self._heal()
        if zookeeper is not None:
            await self._await_healing()
        await self._as_director(self._read_all)
        await self._read_all_disks()

    def _make_ensemble(self) -> None:
        """A ZooKeeper, which makes a cluster of all brokers that come after it."""
        self._zookeeper = SimulatedZooKeeper(self.world)
        self._zookeeper.on_write = self._watch.written

    def _make_node(self, number: int, settings: Mapping[str, str], directories: int) -> BrokerNode:
        node = BrokerNode(self.world, number, settings, directories, self._zookeeper)
        if self._zookeeper is not None:
            node.on_image = partial(self._note_image, node.name)
            node.on_leading = partial(self._watch.leads, node)
        return node

    async def _heal(self) -> None:
        self.world.network.heal()
        if self._zookeeper is not None and self._zookeeper.process is None:
            self._zookeeper.start()
        for node in self._nodes:
            node.heal()
            await node.stop()  # off, or with a directory that failed: both end here
            node.heal()
            node.start()
            if not await node.until_serving():
                self.recorder.history.violations.append(
                    f"{node.name} does not start on a healed disk: {node.exit_reason!r}"
                )

    def _note_image(self, broker: str, place: Place, image: ClusterImage) -> None:
        self.recorder.add(ImageSeen(self.recorder.now, broker, *place, image.controller_id, _checksum(image)))

    async def _await_healing(self) -> None:
        """All brokers have the same image, and every partition a leader and all its replicas in sync."""
        ends = self.world.loop.time() + HEALING_SECONDS_MAX
        while self.world.loop.time() < ends:
            if self._disagreement() is None and not self._not_healed():
                return
            await asyncio.sleep(_LOOK_SECONDS)
        if disagreement := self._disagreement():
            self.recorder.history.violations.append(disagreement)
        for partition, details in self._not_healed().items():
            self.recorder.add(NotHealed(self.recorder.now, _DIRECTOR, partition, details))

    def _disagreement(self) -> str | None:
        histories = [node.broker.running.cluster.history for node in self._nodes if node.broker is not None]
        brokers = [sorted(one.image.brokers) for one in histories]
        if len({one.place for one in histories}) == 1 and len(brokers[0]) == len(self._nodes):
            return None
        places = [str(one.place) for one in histories]
        return f"brokers do not agree on the image of the cluster: {places}, {brokers}"

    def _not_healed(self) -> dict[TopicPartition, str]:
        """By the image of one broker: which partitions are not led, or not all of whose replicas are in sync."""
        brokers = {node.node_id: node.broker for node in self._nodes if node.broker is not None}
        found: dict[TopicPartition, str] = {}
        image = next(iter(brokers.values())).running.cluster.history.image
        for topic in image.topics.values():
            for one in topic.partitions:
                name = TopicPartition(topic.name, one.index)
                broker = brokers.get(one.leader)
                led = None if broker is None else broker.replicas.get(*name)
                if led is None or led.leader_epoch != one.leader_epoch:
                    found[name] = f"broker {one.leader} should lead it in epoch {one.leader_epoch}, and does not"
                elif set(one.isr) != set(one.replicas):
                    found[name] = f"of its replicas {list(one.replicas)} only {list(one.isr)} are in sync"
        return found

    async def _read_all_disks(self) -> None:
        """Stops the brokers, one after the other."""
        history, is_cluster = self.recorder.history, self._zookeeper is not None
        if is_cluster:
            led = [one for node in self._nodes if node.broker is not None for one in node.broker.replicas]
            history.final_watermarks = {one.name: one.high_watermark for one in led}
        for node in self._nodes:
            await node.stop()
            read_disks(node, history, with_records=is_cluster)

    # What the director does as a client

    async def _as_director(self, what: _Task) -> None:
        process = self.world.process(_DIRECTOR)

        async def work() -> None:
            bootstrap = ",".join(node.bootstrap for node in self._nodes)
            network = self.world.network.at(_DIRECTOR)
            source = self.world.random(_DIRECTOR)
            async with Cluster(
                bootstrap, CLUSTER_OPTIONS, network=network, clock=self.world.clock(), source=source
            ) as cluster:
                await what(cluster)

        await self.world.spawn(process, work())
        process.die()

    async def _create_topics(self, cluster: Cluster) -> None:
        for topic in self.plan.topics:
            number = self.recorder.number()
            arguments = (("topic", topic.name), ("partitions", topic.partitions), ("configs", topic.configs))
            self.recorder.add(AdminCalled(self.recorder.now, _DIRECTOR, "create_topic", arguments, number))
            await Admin(cluster).create_topic(topic.name, partitions=topic.partitions, configs=dict(topic.configs))
            self.recorder.add(AdminDone(self.recorder.now, _DIRECTOR, number, topic.partitions))

    async def _read_all(self, cluster: Cluster) -> None:
        self.recorder.history.final_topics.clear()
        for topic in await Admin(cluster).topics():
            if topic.is_internal:
                continue
            configs = await describe_configs(cluster, Resource(ResourceType.TOPIC, topic.name))
            given = tuple((one.name, one.value) for one in configs if one.source is ConfigSource.TOPIC)
            self.recorder.history.final_topics[topic.name] = FinalTopic(len(topic.partitions), given)
            for partition in topic.partitions:
                place = TopicPartition(topic.name, partition.index)
                try:
                    self.recorder.history.final[place] = await _read_partition(cluster, place)
                except BarnabasError as error:
                    self.recorder.happened(_DIRECTOR, "unreadable", f"{place}: {error}")
        for group in sorted({call.group for call in self.recorder.history.of(CommitCalled)}):
            try:
                await ask_committed(cluster, self.recorder, _DIRECTOR, group)
            except BarnabasError as error:
                self.recorder.happened(_DIRECTOR, "unreadable", f"{group}: {error}")


def _checksum(image: ClusterImage) -> int:
    """The same for equal images, in whatever order they came to be."""
    configs = [
        sorted((str(owner), sorted(one.items())) for owner, one in each.items())
        for each in (image.topic_configs, image.broker_configs)
    ]
    brokers, topics = (sorted(map(repr, each.values())) for each in (image.brokers, image.topics))
    return crc32(repr((image.controller_id, brokers, topics, configs)).encode())


async def _read_partition(cluster: Cluster, place: TopicPartition) -> FinalLog:
    start = (await start_offsets(cluster, [place]))[place]
    end = (await end_offsets(cluster, [place]))[place]
    records: list[ShownRecord] = []
    async with Consumer(cluster, ConsumerOptions(wait_ms_max=100)) as consumer:
        consumer.assign({place: start})
        while consumer.positions[place] < end:
            for run in await consumer.poll():
                records += shown_records(run)
    return FinalLog(start, end, tuple(records))
