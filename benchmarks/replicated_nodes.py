"""Clusters of three whose brokers are killed, stopped and started one by one while they are measured.

Barnabas is three `barnabas broker` processes and a ZooKeeper server; Apache Kafka is three nodes that are brokers and
controllers in one (`cluster_nodes`). Their ids are 1 to 3. Leaders stay where they are unless a broker is ended:
`auto.leader.rebalance.enable` is off for both. Whoever makes one closes it.
"""

import asyncio
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.cluster_processes import BrokerOfCluster, ClusterProcesses
from tests.support.kafka import run_tool, wait_until

from barnabas.base.filesystem import LocalFileSystem
from barnabas.broker.settings import BrokerSettings
from barnabas.cli.broker.retirement import retire_broker
from barnabas.cli.zookeeper.zookeeper_jars import find_program
from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers, broker_identity
from benchmarks.broker_load import HOST, LoadFailed, cpu_seconds_of
from benchmarks.cluster_nodes import BROKERS, KafkaCluster, RunningCluster
from benchmarks.cluster_view import PartitionView, metadata, partitions_of

IDS: Final = range(1, BROKERS + 1)
MIN_IN_SYNC: Final = 2
_SESSION_TIMEOUT_MS: Final = "18000"
"""What a broker has unless it is told otherwise."""
_STAY: Final = {"auto.leader.rebalance.enable": "false"}
_TOPIC_SETTINGS: Final = {"min.insync.replicas": str(MIN_IN_SYNC), "file.delete.delay.ms": "0"}
_QUIET: Final = {"log_level": 0, "reconnect.backoff.max.ms": 500}
_PATIENCE_SECONDS: Final = 300.0
_LEADER_ID: Final = re.compile(r"LeaderId:\s+(\d+)")


class ReplicatedCluster(Protocol):
    """One that runs."""

    name: str

    @property
    def ports(self) -> Mapping[int, int]:
        """Of the brokers that run, by id."""
        ...

    @property
    def process_ids(self) -> Sequence[int]:
        """Of all that run, controllers and ZooKeeper included."""
        ...

    def log_directory(self, broker_id: int) -> Path: ...

    def controller(self) -> int: ...

    def kill(self, broker_id: int) -> None:
        """SIGKILL. Returns when the process is gone."""
        ...

    def retire(self, broker_id: int) -> None:
        """Says that a dead broker is dead, where that can be said."""
        ...

    def stop(self, broker_id: int) -> None:
        """In order: SIGTERM. Returns when the process is gone."""
        ...

    def start(self, broker_id: int) -> None:
        """Again; returns when it answers."""
        ...

    def close(self) -> None: ...


class BarnabasReplicas:
    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, name: str = "Barnabas") -> None:
        self.name = name
        self._zookeeper = ZooKeeperServers(find_program(), directory / "zookeeper")
        self._zookeeper.start()
        try:
            connect = f"{self._zookeeper.connect}/benchmark"
            identity = broker_identity(self._zookeeper.directory).read_text().strip()
            secured = {"zookeeper.digest.identity": identity, "zookeeper.set.acl": "true"}
            options = BrokerSettings({"zookeeper.connect": connect, **secured}).config.zookeeper_options()
            assert options is not None, "the settings name a ZooKeeper"
            self._options = options
            own = {"zookeeper.session.timeout.ms": _SESSION_TIMEOUT_MS, **_STAY, **secured, **(settings or {})}
            self._brokers = ClusterProcesses(directory, connect, BROKERS, own)
            self._brokers.__enter__()
        except BaseException:
            self._zookeeper.stop()
            raise

    def _broker(self, broker_id: int) -> BrokerOfCluster:
        return self._brokers[broker_id]

    @property
    def ports(self) -> Mapping[int, int]:
        return {one.id: int(one.bootstrap.rpartition(":")[2]) for one in self._brokers if one.is_running}

    @property
    def process_ids(self) -> Sequence[int]:
        return [one.pid for one in self._brokers if one.is_running] + [one.pid for one in self._zookeeper.nodes]

    def log_directory(self, broker_id: int) -> Path:
        return self._broker(broker_id).data_directory

    def controller(self) -> int:
        found = -1

        def is_known() -> bool:
            nonlocal found
            answers = [metadata(port) for port in self.ports.values()]
            found = -1 if answers[0] is None else answers[0].controller_id
            return found in self.ports and all(one is not None and one.controller_id == found for one in answers)

        wait_until(is_known, "the controller", _PATIENCE_SECONDS)
        return found

    def kill(self, broker_id: int) -> None:
        self._broker(broker_id).kill()

    def retire(self, broker_id: int) -> None:
        """As `barnabas up --brokers` does it."""
        asyncio.run(retire_broker(LocalFileSystem(), self._options, str(self.log_directory(broker_id))))

    def stop(self, broker_id: int) -> None:
        self._broker(broker_id).stop()

    def start(self, broker_id: int) -> None:
        self._broker(broker_id).start()

    def close(self) -> None:
        try:
            self._brokers.__exit__(None, None, None)
        finally:
            self._zookeeper.stop()


class KafkaReplicas:
    def __init__(self, directory: Path, name: str = "Kafka") -> None:
        self.name = name
        self._nodes = KafkaCluster(directory, _STAY)
        self._nodes.prepare()
        self._running = RunningCluster(self._nodes, directory / "output")
        self._down: set[int] = set()

    @property
    def ports(self) -> Mapping[int, int]:
        every = zip(IDS, self._nodes.ports(""), strict=True)
        return {broker_id: port for broker_id, port in every if broker_id not in self._down}

    @property
    def process_ids(self) -> Sequence[int]:
        return self._running.process_ids

    def log_directory(self, broker_id: int) -> Path:
        return self._nodes.log_directory(broker_id)

    def controller(self) -> int:
        """The one that the quorum follows: what Metadata names is any broker."""
        tool = "org.apache.kafka.tools.MetadataQuorumCommand"
        said = run_tool(tool, "--bootstrap-server", bootstrap_of(self), "describe", "--status")
        found = _LEADER_ID.search(said)
        if found is None:
            raise LoadFailed(f"Kafka has no controller: {said[-500:]}")
        return int(found[1])

    def kill(self, broker_id: int) -> None:
        self._end(broker_id, signal.SIGKILL)

    def retire(self, broker_id: int) -> None:
        """Nobody can say it to Kafka's controllers: they wait for the session's timeout, 9 s."""

    def stop(self, broker_id: int) -> None:
        self._end(broker_id, signal.SIGTERM)

    def _end(self, broker_id: int, how: signal.Signals) -> None:
        self._running.end_one(broker_id - 1, how)
        self._down.add(broker_id)

    def start(self, broker_id: int) -> None:
        self._running.start_one(broker_id - 1)
        self._down.discard(broker_id)

    def close(self) -> None:
        self._running.stop()


# -- what is done with either --------------------------------------------------------------------------------------


def bootstrap_of(cluster: ReplicatedCluster) -> str:
    return ",".join(f"{HOST}:{port}" for port in cluster.ports.values())


def cpu_seconds(cluster: ReplicatedCluster) -> float:
    """Of all its processes since their starts."""
    return sum(map(cpu_seconds_of, cluster.process_ids))


def create_topic(
    cluster: ReplicatedCluster, name: str, partitions: int, first: Sequence[int] = IDS, settings: Mapping[str, str] = {}
) -> None:
    """With a replica on every broker; the brokers of `first` take turns in leading. Returns when all are in sync."""
    leaders = [first[index % len(first)] for index in range(partitions)]
    placed = [[leader, *(one for one in IDS if one != leader)] for leader in leaders]
    topic = NewTopic(name, num_partitions=partitions, replica_assignment=placed, config={**_TOPIC_SETTINGS, **settings})
    admin = _admin(cluster)
    for done in admin.create_topics([topic], request_timeout=_PATIENCE_SECONDS).values():
        done.result()
    await_whole(cluster, name, partitions)


def delete_topic(cluster: ReplicatedCluster, name: str) -> None:
    admin = _admin(cluster)
    for done in admin.delete_topics([name], request_timeout=_PATIENCE_SECONDS).values():
        done.result()


def await_whole(cluster: ReplicatedCluster, topic: str, partitions: int) -> Mapping[int, PartitionView]:
    """Waits until all brokers say the same: every partition is led, and every replica is in sync."""
    views: list[dict[int, PartitionView]] = []

    def is_so() -> bool:
        views[:] = [partitions_of(port, topic) for port in cluster.ports.values()]
        return all(view == views[0] for view in views) and is_whole(views[0], partitions)

    wait_until(is_so, f"all replicas of {topic} to be in sync", _PATIENCE_SECONDS)
    return views[0]


def is_whole(view: Mapping[int, PartitionView], partitions: int) -> bool:
    return len(view) == partitions and all(one.leader > 0 and len(one.in_sync) == BROKERS for one in view.values())


def elect_preferred(cluster: ReplicatedCluster, topic: str, partitions: int) -> None:
    """Every partition is led by its first replica again."""
    places = [TopicPartition(topic, index) for index in range(partitions)]
    admin = _admin(cluster)
    answer = admin.elect_leaders(ElectionType.PREFERRED, places).result()
    for place, problem in answer.items():
        if problem is not None and problem.code() != KafkaError.ELECTION_NOT_NEEDED:
            raise LoadFailed(f"{cluster.name}: no preferred leader for {place}: {problem}")
    await_whole(cluster, topic, partitions)


def _admin(cluster: ReplicatedCluster) -> AdminClient:
    """It must outlive its calls: what they return does not keep it."""
    return AdminClient({**_QUIET, "bootstrap.servers": bootstrap_of(cluster)})
