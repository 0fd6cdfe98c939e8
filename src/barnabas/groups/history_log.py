"""Keeps the story of every group in the internal compacted topic `__barnabas_group_history`.

Best effort, and never in the way of the groups: events are gathered for a moment, a few groups are encoded and written
in a turn of the loop, and what cannot be written is dropped with a line in the log. The topic is created for the first
story; until it exists and is read back, events wait (the oldest are dropped beyond a bound). Removing a group removes
its story.

The topic has one partition. Where another broker leads it, stories of groups that are coordinated here are not kept.

Owner: the broker's event loop. Crash: the last moment's events are lost.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Offset
from barnabas.base.logs import fields
from barnabas.base.tasks import Tasks
from barnabas.groups.effects import RebalanceCompleted, StaticMemberReplaced, StoryEvent
from barnabas.groups.history import (
    HISTORY_TOPIC,
    GroupHistory,
    HistoryEntry,
    UnreadableHistory,
    decode_history,
    encode_history,
)
from barnabas.groups.history import encode_key as history_key
from barnabas.groups.loading import Damage, read_records
from barnabas.groups.partitions import FOREVER, LedPartition
from barnabas.records.builder import BatchBuilder

logger = logging.getLogger(__name__)

_GATHER_SECONDS: Final = 0.05
_WRITTEN_TOGETHER: Final = 2
"""Groups whose story is encoded in one turn of the loop: about a millisecond each when long."""
_PAUSE_SECONDS: Final = 0.01
"""Between such turns, while there is more to write."""
_WAITING_MAX: Final = 1000
_READ_BYTES: Final = 1 << 20


class HistoryLog:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int], want_topic: Callable[[], None]
    ) -> None:
        """`want_topic` is called when there is something to write and no partition to write it to."""
        self._loop = loop
        self._tasks = Tasks(loop)
        self._now_ms = now_ms
        self._want_topic = want_topic
        self._partition: LedPartition | None = None
        self._loading: asyncio.Task[None] | None = None
        self._is_loaded = False
        self._waiting: list[HistoryEntry] = []
        self._stories: dict[str, bytes | GroupHistory] = {}
        """Those that were read back stay encoded until the next event of their group."""
        self._unwritten: dict[str, None] = {}
        self._handle: asyncio.TimerHandle | None = None

    def follow(self, partition: LedPartition | None) -> None:
        """This is the partition to write to; None when there is none, or another broker leads it."""
        if partition is self._partition:
            return
        self._stop()
        self._partition = partition
        if partition is not None:
            self._loading = self._tasks.start(self._load(partition))

    def hear(self, events: Sequence[StoryEvent]) -> None:
        entries = [event for event in events if isinstance(event, RebalanceCompleted | StaticMemberReplaced)]
        if not entries:
            return
        if self._partition is None:
            self._want_topic()
        if self._is_loaded:
            self._add(entries)
        else:
            self._waiting = [*self._waiting, *entries][-_WAITING_MAX:]

    def forget(self, group_id: str) -> None:
        """The group is removed."""
        self._waiting = [entry for entry in self._waiting if entry.group_id != group_id]
        if self._stories.pop(group_id, None) is not None:
            self._unwritten[group_id] = None
            self._schedule()

    def close(self) -> None:
        """Writes what is gathered."""
        if self._partition is not None and self._is_loaded:
            while self._unwritten:
                self._write_some(self._partition)
        self._stop()
        self._partition = None

    def _stop(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._is_loaded = False
        self._stories.clear()
        self._unwritten.clear()

    # -- loading -------------------------------------------------------------------------------------------------

    async def _load(self, partition: LedPartition) -> None:
        damage = Damage()
        try:
            await read_records(partition, _READ_BYTES, self._take, damage)
        except BarnabasError as error:
            logger.error("cannot read the rebalance history of the groups, starting a new one: %s", error)
        damage.report(logger, HISTORY_TOPIC, partition.index)
        self._is_loaded = True
        waiting, self._waiting = self._waiting, []
        self._add(waiting)

    def _take(self, keys: Sequence[bytes], values: Sequence[bytes | None], offsets: Sequence[Offset]) -> None:
        for key, value in zip(keys, values, strict=True):
            group_id = key.decode("utf-8", "replace")
            if value is None:
                self._stories.pop(group_id, None)
            else:
                self._stories[group_id] = value

    # -- writing -------------------------------------------------------------------------------------------------

    def _add(self, entries: Iterable[HistoryEntry]) -> None:
        for entry in entries:
            self._stories[entry.group_id] = self._story(entry.group_id).with_entry(entry)
            self._unwritten[entry.group_id] = None
        self._schedule()

    def _story(self, group_id: str) -> GroupHistory:
        known = self._stories.get(group_id)
        if isinstance(known, bytes):
            try:
                return decode_history(known)
            except UnreadableHistory as error:
                message = "cannot read the rebalance history of group %s, starting a new one: %s"
                logger.warning(message, group_id, error, extra=fields(group=group_id))
                known = None
        return GroupHistory(group_id) if known is None else known

    def _schedule(self, seconds: float = _GATHER_SECONDS) -> None:
        if self._unwritten and self._handle is None:
            self._handle = self._loop.call_later(seconds, self._write)

    def _write(self) -> None:
        self._handle = None
        if self._partition is not None and self._is_loaded:
            self._write_some(self._partition)
            self._schedule(_PAUSE_SECONDS)

    def _write_some(self, partition: LedPartition) -> None:
        for group_id in tuple(islice(self._unwritten, _WRITTEN_TOGETHER)):
            del self._unwritten[group_id]
            story = self._stories.get(group_id)
            value = encode_history(story) if isinstance(story, GroupHistory) else story
            builder = BatchBuilder()
            builder.append(self._now_ms(), history_key(group_id), value)
            try:
                last_offset = partition.append(builder.build())
            except BarnabasError as error:
                _log_failure(error)
            else:
                partition.when_committed(last_offset, FOREVER, _log_failure)


def _log_failure(error: BarnabasError | None) -> None:
    if error is not None:
        logger.warning("cannot write the rebalance history of a group: %s", error)
