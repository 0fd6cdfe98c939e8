"""Waits for new records without asking again and again: a long poll at the ends of the partitions that are read.

A broker holds the request until there is something, so that a query reacts at once and an idle one asks twice a second.
What comes is not used: it only says that it is time to look for the new ends.
"""

from collections.abc import Mapping

from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import LATEST, Isolation
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.net.errors import NetworkFailed
from barnabas.wire.errors import KafkaError


class EndWatch:
    """Belongs to one query; its connections stay open from wait to wait."""

    def __init__(self, cluster: Cluster, isolation: Isolation, wait_ms_max: int) -> None:
        options = ConsumerOptions(
            isolation=isolation,
            wait_ms_max=wait_ms_max,
            bytes_max=1,
            partition_bytes_max=1,
            out_of_range=LATEST,
        )
        self._consumer = Consumer(cluster, options)
        self._ends: dict[TopicPartition, Offset] = {}

    async def wait(self, ends: Mapping[TopicPartition, Offset], timeout_seconds: float) -> bool:
        """Whether something came, or anything else happened that is worth a look, before the time was over."""
        if ends != self._ends:
            self._ends = dict(ends)
            self._consumer.assign(ends)
        try:
            runs = await self._consumer.poll(timeout_seconds)
        except (KafkaError, NetworkFailed):
            return True  # the caller's next lookup meets the same problem, and handles it
        if runs:
            self._ends = {}
        return bool(runs)
