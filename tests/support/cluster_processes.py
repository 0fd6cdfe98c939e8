"""Brokers of one cluster, each a `barnabas broker` process of its own, on a real ZooKeeper.

```python
with ClusterProcesses(tmp_path, connect) as cluster:     # three brokers with the ids 1 to 3
    cluster.controller.kill()                            # SIGKILL; its session lives on
    cluster.start()                                      # whatever does not run, on the same data and the same ports
    cluster.agreed()                                     # all of them say the same
```

Each is ended by its process id only, also when a test fails. What one says is in `DIRECTORY/broker-N/log`.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.base.filesystem import LocalFileSystem
from barnabas.broker.session_file import SESSION_FILE, read_session_file
from barnabas.metadata.zookeeper.session_end import end_session
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey, ZooKeeperOptions
from barnabas.net.errors import NetworkFailed
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.kafka import wait_until
from tests.unit.testing.cluster_requests import ask, create

PROGRAM = (sys.executable, "-m", "barnabas.cli.main")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
SESSION_TIMEOUT_MS = 6000
PATIENCE_SECONDS = 180
_LOOK_SECONDS = 0.1
_READY = re.compile(r"is ready on (\S+?:\d+);")
_SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
RETRIABLE = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
"""What is answered while there is no controller, or it cannot write: clients ask again."""
OLDER_PROGRAM = (
    sys.executable,
    "-c",
    """
from barnabas.wire import apis
images = apis.ALL_APIS[apis.ApiKey.FETCH_IMAGE]
older = {images.key.value: images._replace(version_max=images.version_max - 1)}
apis.BROKER_APIS.update(older)
apis.ALL_APIS.update(older)
from barnabas.cli.main import main
main()
""",
)
"""The broker of a release before the last version of FetchImage: it neither asks nor answers in that."""


class BrokerOfCluster:
    """One process, which may be started again when it has ended."""

    def __init__(self, directory: Path, zookeeper: str, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self.data_directory = directory / "data"
        self.log_file = directory / "log"
        self.bootstrap = "127.0.0.1:0"
        """From its first start on, the port that it got."""
        self.is_paused = False
        self.program = PROGRAM
        """What is started next."""
        self._zookeeper = zookeeper
        self._settings = {**_SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._said_before = 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was started"
        return self._process.pid

    @property
    def id(self) -> int:
        """As its directory says."""
        found = re.search(r"^(?:broker|node)\.id=(\d+)$", (self.data_directory / "meta.properties").read_text(), re.M)
        assert found
        return int(found[1])

    @property
    def said(self) -> str:
        """Since its last start."""
        return self.log_file.read_bytes()[self._said_before :].decode("utf-8", "replace")

    # -- its life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when it is ready."""
        self.begin()
        self.wait_ready()

    def begin(self) -> None:
        assert not self.is_running, "it runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        self._said_before = self.log_file.stat().st_size if self.log_file.exists() else 0
        with open(self.log_file, "ab") as output:
            self._process = subprocess.Popen(
                [*self.program, "broker", *self._options, "--listen", self.bootstrap],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=ENVIRONMENT,
            )

    def wait_ready(self) -> None:
        wait_until(lambda: _READY.search(self.said) is not None or not self.is_running, f"the start of {self.log_file}")
        ready = _READY.search(self.said)
        assert ready, self.said[-3000:]
        self.bootstrap = ready[1]

    def wait_ended(self) -> int:
        """Its exit status."""
        assert self._process is not None, "it was started"
        return self._process.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        """In order, which must succeed."""
        self._signal(signal.SIGTERM)
        assert self.wait_ended() == 0, self.said[-3000:]

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.wait_ended()
        self.is_paused = False

    def pause(self) -> None:
        """SIGSTOP: it does nothing any more, and its connections stay."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def end(self) -> None:
        """However the test went."""
        if self.is_running:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    # -- its session ---------------------------------------------------------------------------------------------

    @property
    def session_key(self) -> SessionKey:
        key = read_session_file(LocalFileSystem(), str(self.data_directory / SESSION_FILE))
        assert key is not None
        return key

    def expire_session(self) -> None:
        """From outside, as ZooKeeper itself does when it has not heard of a broker."""
        hosts, _, chroot = self._zookeeper.partition("/")
        assert asyncio.run(end_session(ZooKeeperOptions(hosts, f"/{chroot}"), self.session_key))

    def retire(self) -> subprocess.CompletedProcess[str]:
        """The command, which is for a broker that is dead."""
        command = [*PROGRAM, "broker", "retire", *self._options]
        return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)

    @property
    def _options(self) -> list[str]:
        settings = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        return ["--data-dir", str(self.data_directory), "--zookeeper", self._zookeeper, *settings]


@dataclass(frozen=True, slots=True)
class PartitionView:
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class View:
    """The cluster as one of its brokers tells it to clients."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, str]
    topic_ids: Mapping[str, str]
    partitions: Mapping[tuple[str, int], PartitionView]

    @classmethod
    def of(cls, broker: BrokerOfCluster) -> "View":
        answer = ask(broker, ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
        return cls(
            answer.cluster_id,
            answer.controller_id,
            {one.node_id: f"{one.host}:{one.port}" for one in answer.brokers},
            {topic.name: str(topic.topic_id) for topic in answer.topics},
            {
                (topic.name, one.partition_index): PartitionView(
                    one.leader_id,
                    one.leader_epoch,
                    tuple(one.replica_nodes),
                    tuple(one.isr_nodes),
                    ErrorCode(one.error_code),
                )
                for topic in answer.topics
                for one in topic.partitions
            },
        )

    def led_by(self, broker: BrokerOfCluster, topic: str) -> list[int]:
        return [index for (name, index), one in self.partitions.items() if name == topic and one.leader == broker.id]

    def hosted_by(self, broker: BrokerOfCluster, topic: str) -> list[int]:
        """Led by it, or offline because it is gone."""
        found = self.partitions.items()
        return [index for (name, index), one in found if name == topic and broker.id in one.replicas]

    @property
    def offline(self) -> list[tuple[str, int]]:
        return [name for name, one in self.partitions.items() if one.leader < 0]


class ClusterProcesses:
    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        has_ids: bool = True,
    ) -> None:
        """`zookeeper` is HOST:PORT/CHROOT. Without `has_ids` the brokers are given none."""
        self.directory = directory
        self.zookeeper = zookeeper
        self._settings = settings or {}
        self._brokers = [
            self.broker(f"broker-{number}", {"node.id": str(number)} if has_ids else {})
            for number in range(1, count + 1)
        ]

    def broker(self, name: str, settings: Mapping[str, str]) -> BrokerOfCluster:
        """One more, which the caller starts and ends."""
        return BrokerOfCluster(self.directory / name, self.zookeeper, {**self._settings, **settings})

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for broker in self._brokers:
            broker.end()

    @contextmanager
    def one_more(self, name: str, settings: Mapping[str, str]) -> Iterator[BrokerOfCluster]:
        """A broker that belongs to the cluster until the block ends, or until it is stopped in order before."""
        joining = self.broker(name, settings)
        try:
            joining.start()
            self._brokers.append(joining)
            yield joining
        finally:
            joining.end()
            self._brokers = [broker for broker in self._brokers if broker is not joining]

    def __iter__(self) -> Iterator[BrokerOfCluster]:
        return iter(self._brokers)

    def __getitem__(self, broker_id: int) -> BrokerOfCluster:
        return next(broker for broker in self._brokers if broker.id == broker_id)

    def start(self) -> None:
        """Every broker that does not run, all at once; paused ones go on."""
        for broker in self._brokers:
            if broker.is_paused:
                broker.resume()
        starting = [broker for broker in self._brokers if not broker.is_running]
        for broker in starting:
            broker.begin()
        for broker in starting:
            broker.wait_ready()

    # -- what it says --------------------------------------------------------------------------------------------

    @property
    def awake(self) -> list[BrokerOfCluster]:
        return [broker for broker in self._brokers if broker.is_running and not broker.is_paused]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.awake)

    @property
    def controller(self) -> BrokerOfCluster:
        return self[self.agreed().controller_id]

    def another(self, *not_these: BrokerOfCluster) -> BrokerOfCluster:
        return next(broker for broker in self.awake if broker not in not_these)

    def agreed(self, count: int | None = None) -> View:
        """Waits until all brokers that are awake say the same: it is they who are the cluster, `count` of them.

        The partitions of the others are offline, and no other ones are.
        """
        views: list[View] = []

        def is_so() -> bool:
            nonlocal views
            awake = self.awake
            try:
                views = [View.of(broker) for broker in awake]
            except NetworkFailed:
                return False
            return all(view == views[0] for view in views) and _is_of(views[0], awake)

        try:
            wait_until(is_so, "the brokers to agree", PATIENCE_SECONDS, _LOOK_SECONDS)
        except Exception as error:
            raise AssertionError("\n".join(map(str, views))) from error
        assert count is None or len(self.awake) == count
        return views[0]

    def whole(self, topic: str) -> View:
        """Waits until all brokers agree that every replica of the topic is in sync."""

        def is_so() -> bool:
            view = self.agreed()
            return all(
                set(one.in_sync) == set(one.replicas) for (name, _), one in view.partitions.items() if name == topic
            )

        wait_until(is_so, f"all replicas of {topic} to be in sync", PATIENCE_SECONDS, _LOOK_SECONDS)
        return self.agreed()

    def create_topic(
        self,
        name: str,
        partitions: int = 6,
        replicas: int = 1,
        *,
        by: BrokerOfCluster | None = None,
        placed_on: Sequence[Collection[int]] = (),
    ) -> None:
        """Asks one broker until there is a controller that does it. Every other answer is a mistake."""

        def is_made() -> bool:
            code = create(by or self.another(), name, partitions, replicas, placed_on)
            assert code is ErrorCode.NONE or code in RETRIABLE, code
            return code is ErrorCode.NONE

        wait_until(is_made, f"topic {name}", PATIENCE_SECONDS)


def _is_of(view: View, awake: list[BrokerOfCluster]) -> bool:
    running = {broker.id: broker.bootstrap for broker in awake}
    if view.brokers != running or view.controller_id not in running:
        return False
    return all(
        (one.leader in one.replicas and one.error is ErrorCode.NONE)
        if set(one.replicas) & set(running)
        else (one.leader == -1 and one.error is ErrorCode.LEADER_NOT_AVAILABLE)
        for one in view.partitions.values()
    )
