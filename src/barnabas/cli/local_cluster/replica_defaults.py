"""How many replicas the topics of a local cluster's directory have by default, and more of them when that number grows.

`DIR/replicas.properties` has the defaults that the topics there were created with, under the names of the brokers'
settings. When the cluster starts with larger ones, because it has more brokers or Barnabas a version that replicates,
the topics that have just as many replicas as the file says get more; every other number was somebody's choice. Then
the file has the new defaults: what is created with fewer replicas later on is left alone. With smaller defaults it has
these at once, because they are what is created next.

The file is written before the brokers' properties, and again when all is raised, so that a start that was killed
meanwhile is made good by the next one. A directory from before there was this file says it by the properties of its
first broker.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.filesystem import LocalFileSystem, replace_file
from barnabas.base.properties import render_properties
from barnabas.cli.broker.given_settings import read_properties
from barnabas.cli.local_cluster.cluster_directory import properties_in
from barnabas.cli.output import plural
from barnabas.cli.remote import error_line
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.metadata import TopicMetadata
from barnabas.controller.placement import Replicas, place_more
from barnabas.wire.errors import KafkaError

FILE: Final = "replicas.properties"
_NOTE: Final = "# Written by `barnabas up --brokers`: how many replicas the topics here were created with by default.\n"
_TOPICS: Final = "default.replication.factor"
_INTERNAL: Final = "offsets.topic.replication.factor"
_LOOK_AGAIN_SECONDS: Final = 0.2


class ReplicaDefaults(NamedTuple):
    topics: int = 1
    internal: int = 1

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "ReplicaDefaults":
        """By the settings of a broker; those of a version that did not replicate do not say."""
        return cls(int(texts.get(_TOPICS, "1")), int(texts.get(_INTERNAL, "1")))

    def texts(self) -> dict[str, str]:
        return {_TOPICS: str(self.topics), _INTERNAL: str(self.internal)}

    def at_most(self, others: "ReplicaDefaults") -> "ReplicaDefaults":
        return ReplicaDefaults(*map(min, self, others))

    def for_topic(self, topic: TopicMetadata) -> int:
        return self.internal if topic.is_internal else self.topics


def defaults_of(directory: Path) -> ReplicaDefaults | None:
    """Those of the last start; None when nothing was ever started there."""
    kept = directory / FILE
    if kept.exists():
        return ReplicaDefaults.of(read_properties(kept))
    earlier = properties_in(directory)
    return None if earlier is None else ReplicaDefaults.of(earlier)


def keep_defaults(directory: Path, defaults: ReplicaDefaults) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    content = _NOTE + render_properties(defaults.texts())
    replace_file(LocalFileSystem(), str(directory / FILE), content.encode())


def begin(directory: Path, now: ReplicaDefaults, *, takes_in: bool) -> ReplicaDefaults:
    """Called before anything is started there: the defaults of the topics that there are.

    Those of a single broker, which is taken in, have one replica.
    """
    before = defaults_of(directory)
    if before is None:
        before = ReplicaDefaults() if takes_in else now
    before = before.at_most(now)
    keep_defaults(directory, before)
    return before


def raising(
    directory: Path, bootstrap: str, brokers: int, before: ReplicaDefaults, now: ReplicaDefaults
) -> Callable[[], Coroutine[None, None, str | None]]:
    """What raises the topics of the cluster when it is ready, and returns what to say about it."""

    async def work() -> str | None:
        if before == now:
            return None
        try:
            async with Cluster(bootstrap) as cluster:
                raised = await raise_replicas(Admin(cluster), brokers, before, now)
        except KafkaError as error:
            return _not_raised(error_line(error))
        except BarnabasError as error:
            return _not_raised(str(error))
        keep_defaults(directory, now)
        return raised_text(raised)

    return work


def _not_raised(reason: str) -> str:
    return f"topics from before keep the replicas that they have, until the next start: {reason}"


def raised_text(raised: Counter[int]) -> str | None:
    """'raised to 3 replicas: 4 topics'; None for nothing."""
    told = [f"raised to {plural(factor, 'replica')}: {plural(raised[factor], 'topic')}" for factor in sorted(raised)]
    return "; ".join(told) or None


class _Due(NamedTuple):
    topic: str
    partition: int
    replicas: Replicas


async def raise_replicas(admin: Admin, brokers: int, before: ReplicaDefaults, now: ReplicaDefaults) -> Counter[int]:
    """Adds replicas to partitions that have as many as the earlier default; how many topics have how many now.

    Waits until all brokers are known. Those topics that were raised already have more, so that it can be repeated.
    """
    while len((described := await admin.describe_cluster()).brokers) < brokers:  # noqa: ASYNC110 - a network sets no event
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    racks = {broker.node_id: broker.rack for broker in described.brokers}
    topics = await admin.topics()
    held = Counter(one for topic in topics for partition in topic.partitions for one in partition.replicas)
    raised: Counter[int] = Counter()
    for factor, chosen in _by_factor(topics, before, now, len(racks)).items():
        placed = place_more([one.replicas for one in chosen], racks, factor, held)
        held.update(one for due, replicas in zip(chosen, placed, strict=True) for one in replicas[len(due.replicas) :])
        wanted: dict[str, dict[int, Replicas]] = {}
        for due, replicas in zip(chosen, placed, strict=True):
            wanted.setdefault(due.topic, {})[due.partition] = replicas
        for name, assigned in wanted.items():
            await admin.assign_replicas(name, assigned)
            raised[factor] += 1
    return raised


def _by_factor(
    topics: Sequence[TopicMetadata], before: ReplicaDefaults, now: ReplicaDefaults, brokers: int
) -> dict[int, list[_Due]]:
    """The partitions to raise, by the number of replicas that they should have: at most one for each broker."""
    due: dict[int, list[_Due]] = {}
    for topic in topics:
        has, wanted = before.for_topic(topic), min(now.for_topic(topic), brokers)
        for one in topic.partitions:
            if len(one.replicas) == has < wanted:
                due.setdefault(wanted, []).append(_Due(topic.name, one.index, one.replicas))
    return due
