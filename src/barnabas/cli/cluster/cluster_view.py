"""What the commands show of a cluster: its brokers, what they lead and hold, and the partitions that are in trouble.

| partitions that are | in sync are |
|---|---|
| offline | perhaps some, but nobody leads |
| under-replicated | fewer than there are replicas |
| below minimum | fewer than `min.insync.replicas`: writes with acks=all are refused |
| at minimum | just as many as that: one more failure, and writes with acks=all are refused |

A broker that has just died is listed until its session ends. It is asked for its disks like the others, and shown as
one that does not answer.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from barnabas.base.addresses import address_text
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.wording import first_few
from barnabas.cli.output import human_bytes, make_table, plural
from barnabas.cli.watching import clock_text
from barnabas.client.admin import Admin, LogDirectory
from barnabas.client.cluster import Cluster
from barnabas.client.configs import minimums_in_sync
from barnabas.client.metadata import TopicMetadata

if TYPE_CHECKING:
    from rich.console import RenderableType

    from barnabas.base.ids import TimestampMs

COLUMNS: Final = ("broker#", "address", "rack", "role", "leads#", "replicas#", "log size#", "disk free#")
_ANSWER_SECONDS_MAX: Final = 5.0
_KINDS: Final = {
    "offline": "offline",
    "under_replicated": "under-replicated",
    "below_minimum": "below the minimum in sync",
    "at_minimum": "at the minimum in sync",
}


@dataclass(frozen=True, slots=True)
class BrokerView:
    broker_id: int
    address: str
    rack: str | None
    leads: int
    replicas: int
    directories: tuple[LogDirectory, ...] | None
    """None when the broker does not answer."""

    @property
    def log_bytes(self) -> int:
        """-1 when the broker does not tell."""
        if self.directories is None:
            return -1
        return sum(sum(directory.partition_bytes.values()) for directory in self.directories)

    @property
    def stray_count(self) -> int:
        return sum(directory.stray_count for directory in self.directories or ())

    @property
    def strays(self) -> list[str]:
        """The paths of the first of them."""
        return [os.path.join(one.path, name) for one in self.directories or () for name in one.strays]

    @property
    def free_bytes(self) -> int:
        """Of the fullest disk; -1 when the broker does not tell."""
        return min((directory.usable_bytes for directory in self.directories or ()), default=-1)


@dataclass(frozen=True, slots=True)
class TroubledPartitions:
    """By what is wrong with them. An offline one is only that; another may be in two of the others."""

    offline: tuple[TopicPartition, ...] = ()
    under_replicated: tuple[TopicPartition, ...] = ()
    below_minimum: tuple[TopicPartition, ...] = ()
    at_minimum: tuple[TopicPartition, ...] = ()

    @classmethod
    def among(cls, topics: Iterable[TopicMetadata], minimums: Mapping[str, int]) -> "TroubledPartitions":
        """`minimums` are those of topics with several replicas; the others cannot be worse than offline."""
        found: dict[str, list[TopicPartition]] = {one.name: [] for one in fields(cls)}
        for topic in topics:
            for partition in topic.partitions:
                place = TopicPartition(topic.name, partition.index)
                replicas, in_sync = len(partition.replicas), len(partition.in_sync_replicas)
                minimum = min(minimums.get(topic.name, 0), replicas)
                if partition.leader_id < 0:
                    found["offline"].append(place)
                    continue
                if in_sync < replicas:
                    found["under_replicated"].append(place)
                if in_sync < minimum:
                    found["below_minimum"].append(place)
                elif in_sync == minimum:
                    found["at_minimum"].append(place)
        return cls(**{name: tuple(places) for name, places in found.items()})

    def by_kind(self) -> dict[str, tuple[TopicPartition, ...]]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster_id: str
    controller_id: int
    topic_count: int
    partition_count: int
    brokers: tuple[BrokerView, ...]
    troubled: TroubledPartitions

    @property
    def heading(self) -> str:
        return f"cluster {self.cluster_id}, {plural(self.topic_count, 'topic')}"

    @property
    def problems(self) -> list[str]:
        """A line for each kind."""
        lines = []
        silent = [broker.broker_id for broker in self.brokers if broker.directories is None]
        if silent:
            lines.append(f"no answer from broker {first_few(silent)}")
        if self.controller_id not in {broker.broker_id for broker in self.brokers}:
            lines.append("there is no controller")
        for kind, partitions in self.troubled.by_kind().items():
            if partitions:
                lines.append(f"{plural(len(partitions), 'partition')} {_KINDS[kind]}: {first_few(partitions)}")
        for broker in self.brokers:
            if broker.stray_count:
                names = first_few(broker.strays, broker.stray_count)
                lines.append(f"{plural(broker.stray_count, 'stray log')} on broker {broker.broker_id}: {names}")
        return lines

    def rows(self) -> list[tuple[str, ...]]:
        """For `COLUMNS`."""
        return [
            (
                str(broker.broker_id),
                broker.address,
                broker.rack or "",
                "controller" if broker.broker_id == self.controller_id else "",
                str(broker.leads),
                str(broker.replicas),
                _size(broker.log_bytes),
                _size(broker.free_bytes),
            )
            for broker in self.brokers
        ]

    def fields(self) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "controller_id": self.controller_id,
            "topics": self.topic_count,
            "partitions": self.partition_count,
            "brokers": [
                {
                    "id": broker.broker_id,
                    "address": broker.address,
                    "rack": broker.rack,
                    "leads": broker.leads,
                    "replicas": broker.replicas,
                    "answers": broker.directories is not None,
                    "log_bytes": broker.log_bytes,
                    "free_bytes": broker.free_bytes,
                    "directories": [directory.path for directory in broker.directories or ()],
                    "stray_logs": broker.stray_count,
                    "strays": broker.strays,
                }
                for broker in self.brokers
            ],
            **{kind: _places(partitions) for kind, partitions in self.troubled.by_kind().items()},
        }


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """For `barnabas cluster watch`."""

    view: ClusterView
    now_ms: "TimestampMs"

    def line(self) -> str:
        view = self.view
        partitions = plural(view.partition_count, "partition")
        problems = "".join(f", {problem}" for problem in view.problems)
        return f"{plural(len(view.brokers), 'broker')}, controller {view.controller_id}, {partitions}{problems}"

    def fields(self) -> Mapping[str, Any]:
        return self.view.fields()

    def drawn(self) -> "RenderableType":
        from rich.console import Group as Together
        from rich.text import Text

        return Together(
            Text(f"{clock_text(self.now_ms)}  {self.view.heading}"),
            make_table(COLUMNS, self.view.rows()),
            *(Text(problem, style="yellow") for problem in self.view.problems),
        )


async def look(cluster: Cluster) -> ClusterView:
    """The cluster as it is now."""
    admin = Admin(cluster)
    description = await admin.describe_cluster()
    topics = await admin.topics()
    disks = await asyncio.gather(*(_directories(admin, broker.node_id) for broker in description.brokers))
    partitions = [(topic.name, partition) for topic in topics for partition in topic.partitions]
    brokers = [
        BrokerView(
            broker.node_id,
            address_text(broker.host, broker.port),
            broker.rack,
            sum(partition.leader_id == broker.node_id for _, partition in partitions),
            sum(broker.node_id in partition.replicas for _, partition in partitions),
            directories,
        )
        for broker, directories in zip(description.brokers, disks, strict=True)
    ]
    replicated = {name for name, partition in partitions if len(partition.replicas) > 1}
    troubled = TroubledPartitions.among(topics, await minimums_in_sync(cluster, replicated))
    return ClusterView(
        description.cluster_id,
        description.controller_id,
        len(topics),
        len(partitions),
        tuple(brokers),
        troubled,
    )


async def _directories(admin: Admin, broker_id: int) -> tuple[LogDirectory, ...] | None:
    try:
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            return tuple(await admin.log_directories_of(broker_id))
    except (BarnabasError, TimeoutError):
        return None


def _places(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": one.topic, "partition": one.partition} for one in partitions]


def _size(count: int) -> str:
    return human_bytes(count) if count >= 0 else "?"
