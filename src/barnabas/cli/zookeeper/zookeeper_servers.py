"""ZooKeeper servers as processes of this machine: one of them, or an ensemble.

```
DIR/broker-identity         USER:PASSWORD of ZooKeeper's digest scheme, for brokers; mode 0600
DIR/node-N/zoo.cfg          written at every start
DIR/node-N/data/            ZooKeeper's own, with `myid`
DIR/node-N/server.log       warnings and errors since the last start
```

Node N listens for clients on the given port plus N - 1; on free ports, when that is 0. The ports on which the nodes of
an ensemble talk to each other are free ones, new at every start.
"""

import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.cli.output import plural
from barnabas.cli.ports import free_ports
from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram
from barnabas.cli.zookeeper.zookeeper_node import NodeAddress, ZooKeeperNode, reachable

IDENTITY_FILE: Final = "broker-identity"
_VERSION: Final = re.compile(rb"version: ([\d.]+)")
_START_SECONDS_MAX: Final = 60.0
_POLL_SECONDS: Final = 0.02


class ServerFailed(BarnabasError):  # noqa: N818 - named as the fact that it is
    """A server did not start, or has ended; the message is for a person."""


class ZooKeeperServers:
    """`start` and `stop` them, or use them with `with`."""

    def __init__(
        self, program: ZooKeeperProgram, directory: Path, count: int = 1, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        _check_node_count(directory, count)
        addresses = _addresses(host, port, count)
        self._clock = SystemClock()
        self.directory = directory
        self.nodes = [ZooKeeperNode(program, directory / f"node-{one.number}", one, addresses) for one in addresses]

    @property
    def connect(self) -> str:
        """For clients: HOST:PORT of every node."""
        return ",".join(node.address.client_address for node in self.nodes)

    @property
    def version(self) -> str:
        found = _VERSION.search(self.nodes[0].ask(b"srvr"))
        return "?" if found is None else found[1].decode()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, on_wait: Callable[[int], None] = lambda ready_count: None) -> None:
        """Returns when all are ready. Meanwhile `on_wait` is told how many became ready since it was called last."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # all that brokers store will be in there
        try:
            for node in self.nodes:
                node.start()
            self._wait_until_ready(on_wait)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        try:
            for node in self.nodes:
                node.ask_to_stop()
            for node in self.nodes:
                node.wait_stopped()
        except BaseException:  # Ctrl-C again
            for node in self.nodes:
                node.kill()
            raise

    def _wait_until_ready(self, on_wait: Callable[[int], None]) -> None:
        waiting = list(self.nodes)
        deadline = self._clock.monotonic() + _START_SECONDS_MAX
        while waiting:
            for node in waiting:
                if not node.is_running:
                    raise ServerFailed(f"ZooKeeper did not start: {node.last_words}")
            if self._clock.monotonic() > deadline:
                raise ServerFailed(f"ZooKeeper is not ready after {_START_SECONDS_MAX:.0f} s: {waiting[0].last_words}")
            ready = [node for node in waiting if node.is_ready]
            waiting = [node for node in waiting if node not in ready]
            on_wait(len(ready))
            if waiting:
                self._clock.sleep(_POLL_SECONDS)


def broker_identity(directory: Path) -> Path:
    """The file with the identity for brokers, made when it is not there."""
    path = directory / IDENTITY_FILE
    with suppress(FileExistsError), open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"barnabas:{secrets.token_urlsafe(24)}\n")
    return path


def _check_node_count(directory: Path, count: int) -> None:
    """An ensemble that is started with other members could elect one that lacks the data."""
    present = sum(1 for _node in directory.glob("node-*"))
    if present not in (0, count):
        raise ServerFailed(
            f"{directory} has the data of {plural(present, 'node')}, not of {count}; give --nodes {present}, "
            "or another directory with --data-dir"
        )


def _addresses(host: str, port: int, count: int) -> list[NodeAddress]:
    clients = [(host, port + index if port else 0) for index in range(count)]
    ports = free_ports([*clients, *[(reachable(host), 0)] * (2 * count)])
    return [
        NodeAddress(index + 1, host, ports[index], ports[count + index], ports[2 * count + index])
        for index in range(count)
    ]
