"""The partitions of this broker that others lead: which fetcher has which, and what happens to logs that left theirs.

`Replicas` says what the image says, at once: a partition that this broker is to lead is given up here before it is led
(`leave`), and nothing of an earlier fetch is applied afterwards. A log is cut, or begun again, in a worker thread;
meanwhile nobody fetches for it.

Owner: the broker's event loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from uuid import UUID

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import LeaderEpoch, Offset, TopicPartition
from barnabas.base.tasks import Tasks
from barnabas.replication.fetcher import Fetcher, Followed, FollowerSide
from barnabas.storage.log.log import Log

logger = logging.getLogger(__name__)


class Following:
    """Owner: `Replicas`, which sets `truncate` and `restart`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, side: FollowerSide) -> None:
        self.side = side
        side.cut = self._cut
        side.restart = self._restart
        self.truncate: Callable[[TopicPartition, Offset], Awaitable[None]] = _nothing
        self.restart: Callable[[TopicPartition, Offset], Awaitable[None]] = _nothing
        """Both follow the partition again at their end, if the image says so."""
        self.is_ending = False
        """Whether this broker is about to stop: then it begins to follow nobody, who would propose it as in sync."""
        self._fetchers: dict[int, Fetcher] = {}
        self._followed: dict[TopicPartition, tuple[int, Followed]] = {}
        """With the broker that leads it."""
        self._tasks = Tasks(loop)
        self._cuts = Tasks(loop)

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, name: TopicPartition, topic_id: UUID, log: Log, leader: int, leader_epoch: LeaderEpoch) -> None:
        """What is followed already, in this epoch, goes on."""
        known = self._followed.get(name)
        if known is not None:
            known_leader, followed = known
            if known_leader == leader and followed.leader_epoch == leader_epoch and followed.log is log:
                return
            self.leave(name)
        if self.is_ending:
            return
        followed = Followed(name, topic_id, log, leader_epoch)
        self._followed[name] = leader, followed
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = Fetcher(leader, self.side)
            self._tasks.start(fetcher.run())
        fetcher.add(followed)

    def leave(self, name: TopicPartition) -> None:
        known = self._followed.pop(name, None)
        if known is not None:
            leader, followed = known
            self._fetchers[leader].remove(followed.id)

    def leave_all(self) -> None:
        for name in tuple(self._followed):
            self.leave(name)

    def flushed(self, log: Log) -> None:
        """What was written to a log is synced."""
        known = self._followed.get(log.partition)
        if known is None or known[1].log is not log:
            return
        leader, followed = known
        if log.must_flush(self.side.clock.steady_ms()):  # another flush has ended, which did not have everything
            self.side.flush(followed.name)
        else:
            self._fetchers[leader].flushed(followed.id)

    async def stop(self) -> None:
        """No fetch is under way any more, and no log is being cut."""
        self.leave_all()
        await self._tasks.stop()
        await self._cuts.drain()

    def _cut(self, followed: Followed, offset: Offset) -> None:
        lost = followed.log.end_offset - offset
        logger.info("%s: %d records are not the leader's, and are cut off at offset %d", followed.name, lost, offset)
        self.leave(followed.name)
        self._cuts.start(_noting(self.truncate(followed.name, offset)))

    def _restart(self, followed: Followed, offset: Offset) -> None:
        logger.warning("%s: the leader's log is elsewhere: this one begins again at offset %d", followed.name, offset)
        self.leave(followed.name)
        self._cuts.start(_noting(self.restart(followed.name, offset)))


async def _nothing(name: TopicPartition, offset: Offset) -> None:
    """Until `Replicas` says how."""


async def _noting(cut: Awaitable[None]) -> None:
    """The owner of the directories deals with a disk that fails."""
    try:
        await cut
    except BarnabasError as error:
        logger.warning("a log could not be cut: %s", error)
