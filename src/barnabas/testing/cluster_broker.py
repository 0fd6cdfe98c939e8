"""One broker of a test's cluster: a `Broker` that shares its event loop and its metadata store with the others."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Protocol

from barnabas.base.clock import Clock
from barnabas.base.machine import boot_id
from barnabas.broker import app
from barnabas.broker.parts import BrokerParts
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.net.sockets import SocketNetwork
from barnabas.testing.broker import Broker
from barnabas.testing.files import UnsyncedFileSystem
from barnabas.testing.holding import HeldSource, Hold
from barnabas.testing.lines import LineNetwork
from barnabas.testing.loop_thread import LoopThread
from barnabas.testing.values import Setting


class BrokersHome(Protocol):
    """The cluster, as its brokers see it."""

    clock: Clock

    @property
    def home(self) -> LoopThread: ...

    @property
    def metadata(self) -> EmbeddedMetadata: ...

    def members(self) -> list[app.Broker]:
        """Those that run and follow the controller."""
        ...

    def settle(self) -> None:
        """Returns when all brokers know of a change."""
        ...


class ClusterBroker(Broker):
    """One broker of a cluster. Its topics and groups are those of the cluster, its records those that it leads."""

    def __init__(
        self, cluster: BrokersHome, broker_id: int, settings: Mapping[str, Setting], directory: Path | None
    ) -> None:
        super().__init__(settings, data_directory=directory, clock=cluster.clock)
        self.id = broker_id
        self._cluster = cluster
        self._hold = Hold()
        self._network = LineNetwork(SocketNetwork(), self._hold)
        self._source: HeldSource | None = None

    def __repr__(self) -> str:
        return f"<broker {self.id}>"

    # -- running -------------------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """0 before the first start."""
        return self._port

    @property
    def is_paused(self) -> bool:
        return self._hold.is_held

    def start(self) -> None:
        """Returns when clients are served, and all brokers know of it."""
        super().start()
        self._cluster.settle()

    def stop(self) -> None:
        """A clean stop. Its partitions have no leader until it is started again."""
        self.resume()
        super().stop()
        self._cluster.settle()

    def kill(self) -> None:
        """A stop as by SIGKILL. Its session ends at once, as if somebody had seen it die."""
        if self.is_paused:
            self.drop_connections()  # before it can say anything more
        super().kill()

    def pause(self) -> None:
        """It does nothing from now on, as after SIGSTOP: connections stay open and are not answered, new ones too.

        Its session with the metadata store stays, until `expire_session`.
        """

        async def pause() -> None:
            self._hold.begin()
            self._network.pause()

        self._require_running()
        if not self.is_paused:
            self._run(pause())

    def resume(self) -> None:
        """It goes on where it was, with what it was sent meanwhile."""

        async def resume() -> None:
            self._hold.end()

        if self.is_paused:
            self._run(resume())
            self._cluster.settle()

    def expire_session(self) -> None:
        """Ends its session with the metadata store, as ZooKeeper does when it has not heard of a broker for long.

        It loses its registration and what it led, and comes back by itself with a new session. One that is paused does
        so, and learns of it, when it is resumed.
        """

        async def expire(source: HeldSource) -> None:
            await source.expire()

        self._require_running()
        assert self._source is not None, "it runs"
        self._run(expire(self._source))
        self._cluster.settle()

    # -- its parts -----------------------------------------------------------------------------------------------

    def _enter_home(self) -> LoopThread:
        return self._cluster.home

    def _leave_home(self, home: LoopThread) -> None:
        """The others still live there."""

    def _make_parts(self) -> BrokerParts:
        self._source = HeldSource(self._cluster.metadata, self._hold)
        return BrokerParts(
            UnsyncedFileSystem(),
            self._clock,
            Random(),
            network=self._network,
            metadata=self._source,
            boot_id=boot_id(),
        )

    def _identity(self) -> Mapping[str, str]:
        return {"node.id": str(self.id)}

    def _members(self) -> list[app.Broker]:
        self._require_running()
        return self._cluster.members()

    def served(self) -> app.Broker | None:
        """The broker itself, while it runs; raises when it has stopped by itself."""
        return None if self._running is None else self._require_running().broker

    def cut(self, ports: Sequence[int]) -> None:
        """Which other brokers it cannot reach, from now on."""

        async def cut() -> None:
            self._network.cut(ports)

        self._cluster.home.run(cut())
