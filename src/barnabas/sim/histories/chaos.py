"""The faults of a plan, as they happen to a running world: one coroutine for each kind.

A fault that finds nothing to do (the broker is off already, a client has ended) does nothing. Brokers that are off, for
whatever reason, are started again by `keep_running`, as an init system would.
"""

import asyncio
import errno
from collections.abc import Sequence
from typing import Final

from barnabas.metadata.znodes import BrokerRegistration
from barnabas.sim.histories.actors import ActorProcess
from barnabas.sim.histories.plan import Fault
from barnabas.sim.histories.recorder import Recorder
from barnabas.sim.world.node import BrokerNode
from barnabas.sim.world.world import World
from barnabas.sim.world.zookeeper import SimulatedZooKeeper
from barnabas.sim.world.zookeeper_messages import HOST as ZOOKEEPER

RESTART_SECONDS: Final = 0.5


class Chaos:
    def __init__(
        self,
        world: World,
        recorder: Recorder,
        nodes: Sequence[BrokerNode],
        actors: Sequence[ActorProcess],
        zookeeper: SimulatedZooKeeper | None,
    ) -> None:
        self._world = world
        self._recorder = recorder
        self._nodes = {node.node_id: node for node in nodes}
        self._actors = {actor.name: actor for actor in actors}
        self._zookeeper = zookeeper
        self._off_seconds: dict[int, float] = {}
        self.is_over = False

    async def keep_running(self, node: BrokerNode) -> None:
        """Starts a broker whenever it is off."""
        while not self.is_over:
            await node.until_off()
            if node.exit_reason is not None:
                self._recorder.happened(node.name, "exit", f"{node.exit_reason}")
            await asyncio.sleep(self._off_seconds.pop(node.node_id, RESTART_SECONDS))
            if not self.is_over and node.is_off:
                node.disk.heal()
                self._recorder.happened(node.name, "start")
                node.start()

    async def strike(self, fault: Fault) -> None:
        """Waits for its time, and lets it happen."""
        await asyncio.sleep(max(0.0, fault.at - self._recorder.now))
        if not self.is_over:
            await getattr(self, f"_{fault.kind}")(**fault.arguments)

    def _note(self, client: str, what: str, details: str = "") -> None:
        self._recorder.happened(client, what, details)

    # Brokers

    async def _kill(self, broker: int, off: float) -> None:
        node = self._nodes[broker]
        if not node.is_off:
            self._off_seconds[broker] = off
            self._note(node.name, "kill")
            node.kill()

    async def _power_loss(self, broker: int, off: float) -> None:
        node = self._nodes[broker]
        if not node.is_off:
            self._off_seconds[broker] = off
            self._note(node.name, "power loss")
            node.power_loss()

    async def _crash_at_disk_call(self, broker: int, calls: int, is_power_loss: bool, off: float) -> None:
        node = self._nodes[broker]
        if not node.is_off:
            self._off_seconds[broker] = off
            what = "power loss" if is_power_loss else "kill"
            node.crash_at_disk_call(calls, is_power_loss=is_power_loss, note=lambda: self._note(node.name, what))

    async def _stop(self, broker: int, off: float) -> None:
        node = self._nodes[broker]
        if not node.is_off:
            self._off_seconds[broker] = off
            self._note(node.name, "stop")
            await node.stop()

    async def _pause(self, broker: int, seconds: float) -> None:
        node = self._nodes[broker]
        if node.process is not None:
            self._note(node.name, "pause", f"{seconds:g} s")
            self._world.loop.hold(node.process, seconds)

    async def _clock_jump(self, broker: int, milliseconds: int) -> None:
        self._note(self._nodes[broker].name, "clock jump", f"{milliseconds} ms")
        self._nodes[broker].clock.jump(milliseconds)

    async def _clock_drift(self, broker: int, share: float) -> None:
        self._note(self._nodes[broker].name, "clock drift", f"{share:+.0%}")
        self._nodes[broker].clock.set_drift(share)

    async def _wipe(self, broker: int, off: float) -> None:
        node = self._nodes[broker]
        if not node.is_off:
            self._off_seconds[broker] = off
            self._note(node.name, "wipe")
            node.kill()
            node.wipe()

    # ZooKeeper

    async def _stop_zookeeper(self, seconds: float) -> None:
        """All servers of the ensemble are down for a while."""
        if self._zookeeper is not None and self._zookeeper.process is not None:
            self._note(ZOOKEEPER, "stop", f"for {seconds:g} s")
            self._zookeeper.stop()
            await asyncio.sleep(seconds)
            self._zookeeper.start()

    async def _expire(self, broker: int) -> None:
        """A broker's session ends; its process lives, and finds out."""
        if self._zookeeper is not None and self._zookeeper.expire_owner(BrokerRegistration.path_of(broker)):
            self._note(self._nodes[broker].name, "expire")

    # Disks

    async def _slow_disk(self, broker: int, seconds: float, each: float) -> None:
        node = self._nodes[broker]
        self._note(node.name, "slow disk", f"{each:g} s a call, for {seconds:g} s")
        node.slow_disk(each)
        await asyncio.sleep(seconds)
        node.slow_disk(0.0)

    async def _disk_error(self, broker: int, after_calls: int, directory: int, off: float) -> None:
        """One call fails; some time later somebody has the broker started again."""
        node = self._nodes[broker]
        place = node.directories[directory % len(node.directories)]
        self._note(node.name, "disk error", f"EIO at call {after_calls} in {place}")
        node.disk.fail(errno.EIO, after_calls=after_calls, path_pattern=f"{place}*")
        await asyncio.sleep(3.0)
        await self._stop(broker, off)

    async def _disk_full(self, broker: int, room: int, seconds: float) -> None:
        node = self._nodes[broker]
        self._note(node.name, "disk full", f"after {room} bytes, for {seconds:g} s")
        node.disk.capacity_bytes = node.disk.used_bytes + room
        await asyncio.sleep(seconds)
        node.disk.capacity_bytes = None

    async def _flip(self, broker: int, place: float, off: float) -> None:
        """A bit of a log changes while the broker is off."""
        node = self._nodes[broker]
        if node.is_off:
            return
        await self._kill(broker, off)
        logs = [(path, size) for path, size in node.disk.files() if path.endswith(".log") and size]
        if logs:
            self._flip_in_file(node, "flip", *logs[int(place * len(logs))], place)

    async def _flip_indexes(self, broker: int, place: float, off: float) -> None:
        """A bit of every index changes after a clean stop: nobody but a reader will find out."""
        node = self._nodes[broker]
        if node.is_off:
            return
        await self._stop(broker, off)
        for path, size in node.disk.files():
            if path.endswith((".index", ".timeindex")) and size:
                self._flip_in_file(node, "flip index", path, size, place)

    def _flip_in_file(self, node: BrokerNode, what: str, path: str, size: int, place: float) -> None:
        self._note(node.name, what, path)
        node.disk.flip(path, int(place * 7919 * size) % size)

    # The network

    async def _cut(self, broker: int, client: str, way: str, seconds: float) -> None:
        await self._cut_hosts(client, self._nodes[broker].name, way, seconds)

    async def _cut_zookeeper(self, broker: int, way: str, seconds: float) -> None:
        await self._cut_hosts(self._nodes[broker].name, ZOOKEEPER, way, seconds)

    async def _cut_brokers(self, broker: int, other: int, way: str, seconds: float) -> None:
        await self._cut_hosts(self._nodes[broker].name, self._nodes[other].name, way, seconds)

    async def _cut_hosts(self, one: str, other: str, way: str, seconds: float) -> None:
        network = self._world.network
        self._note(one, "cut", f"{way} {other}, for {seconds:g} s")
        if way in ("both", "to"):
            network.cut(one, other)
        if way in ("both", "from"):
            network.cut(other, one)
        await asyncio.sleep(seconds)
        network.heal_link(one, other)
        network.heal_link(other, one)

    async def _break(self, broker: int, at_client: str | None, after_bytes: int) -> None:
        host = at_client or self._nodes[broker].name
        if self._world.network.break_connection(host, after_bytes):
            self._note(host, "break", f"after {after_bytes} bytes")

    async def _slow_link(self, broker: int, client: str, bytes_per_second: float, seconds: float) -> None:
        node, network = self._nodes[broker], self._world.network
        self._note(client, "slow link", f"{bytes_per_second:g} B/s, for {seconds:g} s")
        network.link(client, node.name).bytes_per_second = bytes_per_second
        network.link(node.name, client).bytes_per_second = bytes_per_second
        await asyncio.sleep(seconds)
        network.heal_link(client, node.name)
        network.heal_link(node.name, client)

    async def _refuse(self, broker: int, seconds: float) -> None:
        node, network = self._nodes[broker], self._world.network
        self._note(node.name, "refuse", f"for {seconds:g} s")
        network.refuse_connections(node.name)
        await asyncio.sleep(seconds)
        network.accept_connections(node.name)

    # Clients

    async def _pause_client(self, client: str, seconds: float) -> None:
        actor = self._actors.get(client)
        if actor is not None and actor.process is not None:
            self._note(client, "pause", f"{seconds:g} s")
            self._world.loop.hold(actor.process, seconds)

    async def _kill_client(self, client: str, seconds: float) -> None:
        actor = self._actors.get(client)
        if actor is not None and actor.process is not None:
            self._note(client, "kill")
            actor.kill()
            await asyncio.sleep(seconds)
            if not actor.is_done.is_set() and actor.process is None:
                self._note(client, "start")
                actor.start()
