"""The demo's death of a leader: which broker is killed, when, and how long its partitions took no records.

The broker that leads the first partition of the metrics is killed (SIGKILL) after half of the records. The gap ends
when a record that was sent after that has been acknowledged in each of the partitions that it led: by another leader,
and by all of the replicas that are in sync.
"""

import asyncio

from barnabas.base.clock import Clock
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Tasks
from barnabas.cli.demo import BrokerProcess
from barnabas.client.cluster import Cluster
from barnabas.client.producing.producer import Delivery
from examples.metrics.fleet import TOPIC


class Failover:
    """Owner: the demo's event loop."""

    def __init__(self, process: BrokerProcess, cluster: Cluster, clock: Clock, *, after_records: int) -> None:
        self._process = process
        self._cluster = cluster
        self._clock = clock
        self._records_left = after_records
        self._killed_at = 0.0
        self._waiting: set[TopicPartition] = set()
        self._tasks = Tasks(asyncio.get_running_loop())
        self.killed_id: int | None = None
        self.partitions: list[TopicPartition] = []
        """Those that it led."""
        self.gap_seconds: float | None = None
        """None until it is over."""

    def sent(self, delivery: Delivery) -> None:
        """A record was given to the producer."""
        if self._records_left > 0:
            self._records_left -= 1
            if not self._records_left:
                self._kill()
        elif self._waiting:
            self._tasks.start(self._see_acknowledged(delivery))

    def _kill(self) -> None:
        partitions = self._cluster.view.topic(TOPIC).partitions
        self.killed_id = partitions[0].leader_id
        self.partitions = [TopicPartition(TOPIC, one.index) for one in partitions if one.leader_id == self.killed_id]
        self._waiting = set(self.partitions)
        self._killed_at = self._clock.monotonic()
        self._process.kill_broker(self.killed_id)

    async def _see_acknowledged(self, delivery: Delivery) -> None:
        partition = (await delivery).partition
        if partition in self._waiting:
            self._waiting.remove(partition)
            if not self._waiting:
                self.gap_seconds = self._clock.monotonic() - self._killed_at

    async def stop(self) -> None:
        await self._tasks.stop()
