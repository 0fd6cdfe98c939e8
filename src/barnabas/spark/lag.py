"""Lag that every tool sees: a query's progress, committed to a consumer group that has no members.

A source does it by itself with the option `kafka.group.id` (`GroupProgress`): Spark asks for the latest offsets after
every batch, and says from where; all before that is done. With a trigger that waits long the commit waits as long, so
whoever wants it at once adds `ProgressListener` to its session: it commits when Spark reports the batch.

A commit that fails does not stop the query. It is told once for each reason, and the next batch commits anyway.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from barnabas.base.clock import Clock, SystemClock
from barnabas.client.cluster import Cluster, ClusterOptions
from barnabas.client.group_offsets import commit_offsets
from barnabas.net.errors import NetworkFailed
from barnabas.spark.clients import shared_client
from barnabas.spark.offsets import PartitionOffsets, from_tree
from barnabas.wire.errors import KafkaError

_LOG = logging.getLogger(__name__)

_COMMIT_SECONDS_MAX: Final = 10.0
_REPEAT_SECONDS: Final = 600.0
"""An idle query commits again so often: brokers forget the offsets of a group that is silent for days."""


class GroupProgress:
    """Commits what is new. One caller at a time."""

    def __init__(self, cluster: Cluster, group: str, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._group = group
        self._clock = clock or SystemClock()
        self._committed: PartitionOffsets | None = None
        self._committed_at = float("-inf")
        self._problem = ""

    async def commit(self, offsets: PartitionOffsets) -> None:
        """Never raises for what a broker does; the offsets are the next ones to be read."""
        is_old = self._clock.monotonic() - self._committed_at > _REPEAT_SECONDS
        if not offsets or (offsets == self._committed and not is_old):
            return
        try:
            async with asyncio.timeout(_COMMIT_SECONDS_MAX):
                await commit_offsets(self._cluster, self._group, offsets)
        except (KafkaError, NetworkFailed, TimeoutError) as error:
            problem = str(error) or "no answer in time"
            if problem != self._problem:
                _LOG.warning("progress is not committed to group '%s': %s", self._group, problem)
            self._problem = problem
            return
        self._problem = ""
        self._committed = dict(offsets)
        self._committed_at = self._clock.monotonic()


class ProgressListener(StreamingQueryListener):
    """Commits the progress of named queries as Spark reports it: `spark.streams.addListener(...)`.

    `groups` has a group for each query's name. Every source of the query whose offsets are of this format's form is
    committed, so two queries must not share a group.
    """

    def __init__(self, bootstrap: str, groups: Mapping[str, str], options: ClusterOptions | None = None) -> None:
        self._bootstrap = bootstrap
        self._groups = dict(groups)
        self._options = options or ClusterOptions()
        self._progress: dict[str, GroupProgress] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing is done yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        group = self._groups.get(event.progress.name or "")
        if group is None:
            return
        done: PartitionOffsets = {}
        for source in event.progress.sources:
            done.update(_offsets(source.endOffset))
        client = shared_client(self._bootstrap, self._options)
        progress = self._progress.setdefault(group, GroupProgress(client.cluster, group))
        client.wait_for(progress.commit(done))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """What was done is committed already."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The last progress was reported before."""


def _offsets(text: str | None) -> PartitionOffsets:
    """Those of a source of this format; none for others, whose offsets are of other forms."""
    try:
        return from_tree(json.loads(text or "{}"))
    except ValueError:
        return {}
