"""What a page can let happen: one method for each sentence that is no `expect`, named after its form."""

import asyncio
import errno
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Final, Literal

from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.producing.producer import ProducerOptions
from barnabas.metadata.znodes import BrokerRegistration
from barnabas.sim.faults import Operation
from barnabas.sim.histories.plan import REPLICAS_MAX
from barnabas.sim.scenarios.clients import (
    AdminClient,
    Client,
    MemberClient,
    Membership,
    ProducingClient,
    ReadingClient,
)
from barnabas.sim.scenarios.slots import Item
from barnabas.sim.scenarios.stage import PATIENCE_SECONDS, Stage, Unexpected

_DELIVERY_SECONDS: Final = 25.0
_ADMIN: Final = "admin"
_SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
"""Housekeeping every second; nothing is flushed but by a topic's own settings."""


_CLUSTER_SETTINGS: Final = {"replica.lag.time.max.ms": "2000"}


class Doings(Stage):
    # Nodes

    async def do_declare_broker(self, number: int, disks: int = 1, settings: tuple[tuple[str, str], ...] = ()) -> None:
        self._nodes.append(self._make_node(number, {**_SETTINGS, **dict(settings)}, disks))

    async def do_declare_cluster(
        self,
        count: int,
        disks: int = 1,
        *,
        that_suspect_each_other: bool = False,
        settings: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._make_ensemble()
        self._ensemble.keeps_secrets = that_suspect_each_other
        replicas = str(min(REPLICAS_MAX, count))
        own = {"offsets.topic.replication.factor": replicas, "default.replication.factor": replicas}
        for number in range(1, count + 1):
            await self.do_declare_broker(number, disks, settings=(*own.items(), *_CLUSTER_SETTINGS.items(), *settings))
            await self.do_start(f"broker-{number}")

    async def do_start(self, node: str) -> None:
        if node in self._clients:
            self.recorder.happened(node, "start")
            self._clients[node].start()
            return
        await self.do_begin_start(node)
        if not await self._node(node).until_serving():
            raise Unexpected(f"it ended: {self._node(node).exit_reason}")

    async def do_begin_start(self, broker: str) -> None:
        node = self._node(broker)
        if not node.is_off:
            raise Unexpected(f"{broker} runs")
        self.recorder.happened(broker, "start")
        node.start()

    async def do_stop(self, broker: str) -> None:
        self.recorder.happened(broker, "stop")
        await self._node(broker).stop()

    async def do_kill(self, node: str) -> None:
        self.recorder.happened(node, "kill")
        if node in self._clients:
            self._clients[node].kill()
        else:
            self._node(node).kill()

    async def do_power_loss(self, broker: str, losing_everything_unsynced: bool) -> None:
        self.recorder.happened(broker, "power loss")
        self._node(broker).power_loss(loses_all=losing_everything_unsynced)

    async def do_power_loss_at(self, broker: str, number: int, operation: Operation, pattern: str) -> None:
        self._crash_at(broker, "power loss", number, operation, pattern)

    async def do_kill_at(self, broker: str, number: int, operation: Operation, pattern: str) -> None:
        self._crash_at(broker, "kill", number, operation, pattern)

    def _crash_at(
        self, broker: str, what: Literal["kill", "power loss"], number: int, operation: Operation, pattern: str
    ) -> None:
        self._node(broker).crash_at_disk_call(
            number - 1,
            is_power_loss=what == "power loss",
            note=lambda: self.recorder.happened(broker, what),
            operation=operation,
            path_pattern=pattern,
        )

    async def do_wipe(self, broker: str) -> None:
        self.recorder.happened(broker, "wipe")
        self._node(broker).wipe()

    async def do_pause(self, node: str, seconds: float) -> None:
        process = self._clients[node].process if node in self._clients else self._node(node).process
        if process is None:
            raise Unexpected(f"{node} is off")
        self.recorder.happened(node, "pause", f"{seconds:g} s")
        self.world.loop.hold(process, seconds)

    async def do_expire(self, broker: str) -> None:
        self.recorder.happened(broker, "expire")
        if not self._ensemble.expire_owner(BrokerRegistration.path_of(self._node(broker).node_id)):
            raise Unexpected(f"{broker} is not registered")

    async def do_stop_zookeeper(self) -> None:
        self.recorder.happened("zookeeper", "stop")
        self._ensemble.stop()

    async def do_start_zookeeper(self) -> None:
        self.recorder.happened("zookeeper", "start")
        self._ensemble.start()

    async def do_jump(self, broker: str, seconds: float, back: bool) -> None:
        milliseconds = int(seconds * 1000) * (-1 if back else 1)
        self.recorder.happened(broker, "clock jump", f"{milliseconds} ms")
        self._node(broker).clock.jump(milliseconds)

    # Disks

    async def do_disk_fails(self, broker: str, operation: Operation, pattern: str, error: int, for_ever: bool) -> None:
        self.recorder.happened(broker, "disk error", f"{errno.errorcode[error]} at {operation} of {pattern}")
        times = None if for_ever else 1
        self._node(broker).disk.fail(error, operations=(operation,), path_pattern=pattern, times=times)

    async def do_disk_full(self, broker: str, room: int = 0) -> None:
        self.recorder.happened(broker, "disk full", f"after {room} bytes")
        disk = self._node(broker).disk
        disk.capacity_bytes = disk.used_bytes + room

    async def do_disk_slow(self, broker: str, seconds: float, operation: Operation | None = None) -> None:
        self.recorder.happened(broker, "slow disk", f"{seconds:g} s a {operation or 'call'}")
        self._node(broker).slow_disk(seconds, operation)

    async def do_disk_heals(self, broker: str) -> None:
        self.recorder.happened(broker, "disk heals")
        self._node(broker).heal()

    async def do_flip(self, pattern: str, broker: str, position: int) -> None:
        disk = self._node(broker).disk
        paths = [path for path, size in disk.files() if fnmatchcase(path, pattern) and size > position]
        if len(paths) != 1:
            there = "\n".join(f"  {path}, {size} bytes" for path, size in disk.files())
            raise Unexpected(f"{len(paths)} files match and have a byte {position}; the disk has\n{there}")
        self.recorder.happened(broker, "flip", paths[0])
        disk.flip(paths[0], position)

    # Network

    async def do_cut(self, source: str, target: str) -> None:
        self.recorder.happened(source, "cut", f"to {target}")
        self.world.network.cut(source, target)

    async def do_cut_both(self, source: str, target: str) -> None:
        await self.do_cut(source, target)
        await self.do_cut(target, source)

    async def do_lose_answer(self, source: str, target: str) -> None:
        self.recorder.happened(target, "break", f"at the next answer of {source}")
        self.world.network.lose_answer(source, target)

    async def do_refuse(self, broker: str) -> None:
        self.recorder.happened(broker, "refuse")
        self.world.network.refuse_connections(broker)

    async def do_heal(self) -> None:
        self.recorder.happened("network", "heal")
        self.world.network.heal()

    async def do_heal_link(self, source: str, target: str) -> None:
        self.recorder.happened("network", "heal", f"{source} and {target}")
        self.world.network.heal_link(source, target)
        self.world.network.heal_link(target, source)

    async def do_wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # Topics

    async def do_create_topic(
        self, topic: str, partitions: int = 1, settings: tuple[tuple[str, str], ...] = ()
    ) -> None:
        await self._admin(lambda admin: admin.create_topic(topic, partitions, settings))

    async def do_create_replicated(
        self, topic: str, brokers: tuple[int, ...], settings: tuple[tuple[str, str], ...] = ()
    ) -> None:
        await self._admin(lambda admin: admin.create_topic(topic, 1, settings, {0: brokers}))

    async def do_delete_topic(self, topic: str) -> None:
        await self._admin(lambda admin: admin.delete_topic(topic))

    async def do_set_config(self, settings: tuple[tuple[str, str], ...], topic: str) -> None:
        await self._admin(lambda admin: admin.set_config(topic, settings))

    async def do_add_partitions(self, topic: str, total: int) -> None:
        await self._admin(lambda admin: admin.add_partitions(topic, total))

    async def do_delete_records(self, partition: TopicPartition, offset: Offset) -> None:
        await self._admin(lambda admin: admin.delete_records(partition, offset))

    async def _admin(self, call: Callable[[AdminClient], None]) -> None:
        admin = self._clients.get(_ADMIN)
        if admin is None:
            admin = AdminClient(self._place, _ADMIN)
            self._add(admin)
        assert isinstance(admin, AdminClient)
        count = len(admin.errors)
        call(admin)
        await self._until(lambda: len(admin.errors) > count, PATIENCE_SECONDS, lambda: "no answer")
        if admin.errors[-1] is not None:
            raise Unexpected(admin.errors[-1])

    # Producers

    async def do_declare_producer(
        self, name: str, idempotent: bool, acks: int = -1, seconds: float = _DELIVERY_SECONDS
    ) -> None:
        options = ProducerOptions(
            acks=acks, is_idempotent=idempotent, linger_seconds=0.005, delivery_timeout_seconds=seconds
        )
        self._add(ProducingClient(self._place, name, options))

    async def do_send(
        self,
        producer: str,
        values: tuple[Item, ...],
        partition: TopicPartition,
        without_waiting: bool,
        size: int = 0,
    ) -> None:
        sendings = self._producer(producer).send(partition, values, size)
        if not without_waiting:
            await self._settled(sendings, None)

    # Readers and members

    async def do_declare_reader(
        self, name: str, partition: TopicPartition, offset: Offset, seconds: float = 0.5
    ) -> None:
        self._add(ReadingClient(self._place, name, partition, offset, int(seconds * 1000)))

    async def do_declare_member(
        self, name: str, group: str, topic: str, instance: str | None = None, seconds: float = 6.0
    ) -> None:
        self._add(MemberClient(self._place, name, Membership(group, topic, instance, int(seconds * 1000))))

    async def do_commit(self, member: str) -> None:
        await self._member_does(member, self._member(member).commit)

    async def do_leave(self, member: str) -> None:
        await self._member_does(member, self._member(member).leave)
        self._member(member).kill()

    async def _member_does(self, name: str, ask: Callable[[], None]) -> None:
        member = self._member(name)
        answers, failures = member.answers, len(member.failures)
        ask()
        await self._until(lambda: member.answers > answers, None, lambda: f"{name} has not done it")
        if len(member.failures) > failures:
            raise Unexpected(member.failures[-1])

    def _add(self, client: Client) -> None:
        self._clients[client.name] = client
        client.start()
