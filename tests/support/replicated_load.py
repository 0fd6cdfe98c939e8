"""A producer and a group on a replicated topic of a cluster whose brokers fail, and the check of what they leave.

```python
with ClusterProcesses(directory, zookeeper, REPLICAS, REPLICATED) as cluster, loaded(cluster, "orders") as load:
    kill(load.leader())                       # any fault
    load.wait_for_more()                      # both go on meanwhile
    load.bring_back()
```

The idempotent producer asks for acks=all, which two of three replicas must give. When the block ends, all that was
acked has been consumed, once and in order, the group has not rebalanced, and the files of all replicas are equal.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.acked_records import PATIENCE_SECONDS, GroupReading, Writing, check_records
from tests.support.cluster_processes import BrokerOfCluster, ClusterProcesses, View
from tests.support.kafka import wait_until
from tests.support.replica_files import check_replicas

REPLICAS = 3
PARTITIONS = 3
REPLICATED = {
    "offsets.topic.replication.factor": str(REPLICAS),
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
}


@dataclass(frozen=True)
class Load:
    """A topic of the cluster, its producer and its group."""

    cluster: ClusterProcesses
    topic: str
    writing: Writing
    reading: GroupReading

    def leader(self, partition: int = 0) -> BrokerOfCluster:
        return self.cluster[self.cluster.agreed().partitions[self.topic, partition].leader]

    def in_sync(self, by: BrokerOfCluster | None = None) -> dict[int, tuple[int, ...]]:
        """The in-sync replicas of each partition; as this broker says, or as all agree."""
        view = self.cluster.agreed() if by is None else View.of(by)
        return {index: one.in_sync for (name, index), one in view.partitions.items() if name == self.topic}

    def wait_until_left(self, *left: BrokerOfCluster) -> None:
        """Until none of these is in sync, in any partition."""
        ids = {one.id for one in left}
        wait_until(
            lambda: all(ids.isdisjoint(one) for one in self.in_sync().values()), f"{ids} to leave", PATIENCE_SECONDS
        )

    def wait_for_more(self) -> None:
        """Both go on, in all partitions."""
        self.writing.wait_for_more()
        self.reading.wait_for_more()

    def bring_back(self) -> None:
        """Every broker runs, every replica is in sync, and the load goes on."""
        self.cluster.start()
        self.cluster.whole(self.topic)
        self.wait_for_more()


@contextmanager
def loaded(
    cluster: ClusterProcesses, topic: str, placed_on: Sequence[Collection[int]] = (), *, replicas: int = REPLICAS
) -> Iterator[Load]:
    """A new topic with its load. `placed_on` has the brokers of each partition, where that matters."""
    partitions = len(placed_on) or PARTITIONS
    cluster.create_topic(topic, partitions, replicas, placed_on=placed_on)
    cluster.whole(topic)
    bootstrap = cluster.bootstrap
    with GroupReading(bootstrap, topic, f"readers-of-{topic}") as reading:
        with Writing(bootstrap, topic, partitions) as writing:
            running = Load(cluster, topic, writing, reading)
            running.wait_for_more()
            yield running
        reading.wait_for_all(writing.acked)
    check(running)


def check(load: Load) -> None:
    acked = {index: [values[offset] for offset in sorted(values)] for index, values in load.writing.acked.items()}
    assert load.reading.consumed == acked, "consumed is what was acked, once and in order"
    assert load.reading.rebalances == 1, "the group did not notice"
    check_records(load.cluster.bootstrap, load.topic, load.writing.acked)
    directories = [broker.data_directory for broker in load.cluster]
    check_replicas(load.cluster.bootstrap, load.topic, len(acked), directories)


def kill(broker: BrokerOfCluster) -> None:
    """And end its session, as a supervisor does."""
    broker.kill()
    retired = broker.retire()
    assert retired.returncode == 0, retired.stderr
