"""Automatic commits of a member of a group: now and then, and before partitions are given up.

Only processed records (see `group_progress`) are committed. One commit is under way at a time, in its own task that
nothing waits for: when it fails, the next one covers it, or the records are delivered again.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.group.group_progress import Progress
from barnabas.client.group.membership import Membership
from barnabas.net.errors import NetworkFailed
from barnabas.wire.errors import KafkaError

_LOG = logging.getLogger(__name__)

_COMMIT_SECONDS_MAX: Final = 5.0
"""How long giving up partitions, or the end, may wait for a commit."""


class AutomaticCommits:
    """Belongs to one consumer, which calls `cancel` at the end."""

    def __init__(
        self,
        group: str,
        membership: Membership,
        progress: Progress,
        interval_ms: int | None,
        on_done: Callable[[], None],
    ) -> None:
        """Without an interval nothing is committed. `on_done` is called when a commit has ended, well or not."""
        self._group = group
        self._membership = membership
        self._progress = progress
        self._interval_ms = interval_ms
        self._on_done = on_done
        self._task: asyncio.Task[None] | None = None
        self._due: float | None = None

    def start_when_due(self) -> float | None:
        """Starts a commit when it is time for one; when it will be, or None while there is nothing to commit."""
        if self._interval_ms is None or not self._membership.is_member:
            return None
        wanted = self._progress.uncommitted()
        if not wanted or (self._task is not None and not self._task.done()):
            return None
        now = asyncio.get_running_loop().time()
        if self._due is None:
            self._due = now + self._interval_ms / 1000
        if now < self._due:
            return self._due
        self._due = None
        self._task = asyncio.create_task(self._commit(wanted))
        self._task.add_done_callback(lambda _: self._on_done())
        return None

    async def finish(self, partitions: Collection[TopicPartition]) -> None:
        """Commits what is done of these, while they are still ours."""
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._interval_ms is not None:
            await self._commit(self._progress.uncommitted(partitions))

    async def cancel(self) -> None:
        """Ends the commit that is under way."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _commit(self, wanted: Mapping[TopicPartition, Offset]) -> None:
        if not wanted or not self._membership.is_member:
            return
        try:
            await self._membership.commit(wanted, timeout_seconds=_COMMIT_SECONDS_MAX)
        except (NetworkFailed, KafkaError) as error:
            _LOG.warning("commit failed", extra={"group": self._group, "problem": str(error)})
        else:
            self._progress.note_committed(wanted)
