"""Lag that every tool sees: a stream's progress, committed to a consumer group that has no members.

Nothing else commits it, neither for a plain stream of `format("barnabas")` nor for a pipeline, whose queries are such
streams. `StreamProgress` lives in the process of the stream's reader and learns in two ways what is done:

- Spark asks for the latest offsets after every batch, also after the last one of `availableNow`, and says from where:
  everything before that is done (`done`).
- With a trigger that waits long, Spark asks as late. Where the option `checkpointLocation` names the query's
  checkpoint, a batch that was planned (`planned`) is done as soon as Spark has written it down there:

```
CHECKPOINT/commits/N    written when batch N is finished
```

A commit that fails does not stop the query. Each reason is logged once, and the next batch commits anyway. A crash
leaves the group behind the checkpoint by a batch at most; the next start commits first.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Final

from barnabas.base.clock import Clock, SystemClock
from barnabas.client.cluster import Cluster
from barnabas.client.group.group_offsets import commit_offsets
from barnabas.net.errors import NetworkFailed
from barnabas.spark.offsets import PartitionOffsets
from barnabas.wire.errors import KafkaError

_LOG = logging.getLogger(__name__)

_COMMIT_SECONDS_MAX: Final = 10.0
_LOOK_SECONDS: Final = 0.2
"""Between two looks at the checkpoint, while a batch runs."""
_REPEAT_SECONDS: Final = 600.0
"""An idle query commits again this often: brokers forget the offsets of a group that is silent for days."""
_NO_BATCH: Final = -1


class StreamProgress:
    """Commits what is new, one commit at a time. To be used within one event loop."""

    def __init__(
        self, cluster: Cluster, group: str, checkpoint: Path | None = None, clock: Clock | None = None
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._checkpoint = checkpoint
        self._clock = clock or SystemClock()
        self._turn = asyncio.Lock()
        self._committed: PartitionOffsets | None = None
        self._committed_at = float("-inf")
        self._problem = ""
        self._planned: PartitionOffsets | None = None
        self._batch_before = _NO_BATCH
        self._follower: asyncio.Task[None] | None = None

    async def done(self, offsets: PartitionOffsets) -> None:
        """Everything below these offsets is finished. Never raises for what a broker does."""
        async with self._turn:
            await self._commit(offsets)

    async def planned(self, end: PartitionOffsets) -> None:
        """A batch that ends there is about to run."""
        if self._checkpoint is None:
            return
        self._planned, self._batch_before = dict(end), last_finished_batch(self._checkpoint)
        if self._follower is None:
            self._follower = asyncio.create_task(self._follow(self._checkpoint))

    async def close(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])

    async def _follow(self, checkpoint: Path) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            planned = self._planned
            if planned is not None and last_finished_batch(checkpoint) > self._batch_before:
                self._planned = None
                await self.done(planned)

    async def _commit(self, offsets: PartitionOffsets) -> None:
        is_old = self._clock.monotonic() - self._committed_at > _REPEAT_SECONDS
        if not offsets or (offsets == self._committed and not is_old):
            return
        try:
            async with asyncio.timeout(_COMMIT_SECONDS_MAX):
                await commit_offsets(self._cluster, self._group, offsets)
        except (KafkaError, NetworkFailed, TimeoutError) as error:
            problem = str(error) or "no answer in time"
            if problem != self._problem:
                _LOG.warning("cannot commit progress to group '%s': %s", self._group, problem)
            self._problem = problem
            return
        self._problem = ""
        self._committed = dict(offsets)
        self._committed_at = self._clock.monotonic()


def last_finished_batch(checkpoint: Path) -> int:
    """The number of the last batch that a query has finished; -1 when there is none, or nothing can be read."""
    try:
        names = os.listdir(checkpoint / "commits")
    except OSError:
        return _NO_BATCH
    return max((int(name) for name in names if name.isdecimal()), default=_NO_BATCH)
