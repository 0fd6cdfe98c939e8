"""The groups of one partition of `__consumer_offsets`, driven: what the pure state asks for is done here.

```
              follow                     all read, all replayed
   (new) ───────────────▶ LOADING ───────────────────────────────▶ ACTIVE
                             ▲                                       │ an append whose fate nobody knows
                             └───────────────────────────────────────┘
   LOADING: the disk fails ──▶ FAILED ── a while later ──▶ LOADING    any ── not led here any more ──▶ CLOSED
```

Records that cannot be read, and batches that are damaged, are left out and reported: no bytes in the log keep a shard
from loading.

A call on the state returns effects. Timers and events are carried out at once. Records of all calls of a tick are
appended as one batch (or as few as the topic's limit allows), each call's records within one; when the high watermark
is above them the state is told, and then the callers. While that is under way, later calls go on: the state keeps what
is not yet durable apart. Of a log that is longer than what is committed everything is loaded; the shard is active when
all of it is committed.

Waiting callers are tokens: functions that take the result, or an `ErrorCode` when there is none. Each is called exactly
once, on whatever road the shard leaves: NOT_COORDINATOR makes a client look for its coordinator and come again.

Owner: the broker's event loop. Nothing here outlives the process but what is in the log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from barnabas.base.clock import Moment
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.ids import Offset
from barnabas.base.logs import RepeatedWarning, fields
from barnabas.base.tasks import Tasks
from barnabas.base.timers import LoopTimers, Timer
from barnabas.groups.batches import build_batch
from barnabas.groups.effects import CancelTimer, DurableRecord, Effects, StoryEvent, TimerKey
from barnabas.groups.loading import Damage, read_records
from barnabas.groups.partitions import FOREVER, OFFSETS_TOPIC, LedPartition
from barnabas.groups.records import CorruptGroupRecord, GroupChange
from barnabas.groups.replay import Replay
from barnabas.groups.state import GroupShardState
from barnabas.records.batch import HEADER_BYTES, Codec
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

Token: TypeAlias = Callable[[Any], None]
"""Called once, with the result of the call that it was given to, or with an `ErrorCode`."""

_RECORD_BYTES_MAX = 32
"""What a record has in a batch besides its key and value, at most."""
_BUILT_TOGETHER = 200
_REVIVED_TOGETHER = 20
_TIMER_AGAIN_MS = 1000
_LOAD_AGAIN_MS = 10_000
_WARNING_SECONDS = 60.0

_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a client of a group gets when the log refuses a record."""


class ShardStatus(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class ShardWorld(NamedTuple):
    """What all shards of a broker share."""

    loop: asyncio.AbstractEventLoop
    timers: LoopTimers
    now: Callable[[], Moment]
    new_state: Callable[[], GroupShardState]
    on_events: Callable[[Sequence[StoryEvent]], None]
    append_soon: "Callable[[GroupShard], None]"
    """Has `GroupShard.append` called at the end of the tick."""
    on_removed: Callable[[str], None]
    on_loaded: "Callable[[GroupShard, float], None]"
    monotonic: Callable[[], float]
    buffer_bytes: int
    codec: Codec
    commit_timeout_ms: int
    loading_turn: asyncio.Lock
    """One shard loads at a time: they hold the loop no longer, and need no more memory, than one; the first is ready
    soon."""


class _Replayed(NamedTuple):
    count: int  # type: ignore[assignment]  # hides a method of tuple that nobody needs here
    state: GroupShardState
    damage: Damage


class _Batch:
    """What was appended together, until its fate is known."""

    __slots__ = ("effects", "is_given_up", "last_offset")

    def __init__(self, last_offset: Offset, effects: list[Effects]) -> None:
        self.last_offset = last_offset
        self.effects = effects
        self.is_given_up = False


class GroupShard:
    def __init__(self, partition: LedPartition, world: ShardWorld) -> None:
        self.partition = partition
        self.status = ShardStatus.LOADING
        self.state = world.new_state()
        self._world = world
        self._timers: dict[TimerKey, Timer] = {}
        self._unwritten: list[Effects] = []
        self._uncommitted: deque[_Batch] = deque()
        self._retry_timer = Timer(self._load)
        self._fields = fields(topic=OFFSETS_TOPIC, partition=partition.index)
        self._has_loaded = False
        self._reloading = RepeatedWarning(logger, world.loop.time, _WARNING_SECONDS)
        """On a full disk every commit causes a reload."""
        self._tasks = Tasks(world.loop)
        self._late = RepeatedWarning(logger, world.loop.time, _WARNING_SECONDS)
        self._loading: asyncio.Task[None] | None = None
        partition.watch(self.close)
        self._load()

    # -- loading and ending --------------------------------------------------------------------------------------

    def _load(self) -> None:
        self.status = ShardStatus.LOADING
        self._loading = self._tasks.start(self._replay_log())

    async def _replay_log(self) -> None:
        world, partition = self._world, self.partition
        began = world.monotonic()
        try:
            end_offset = partition.end_offset
            async with world.loading_turn:
                count, state = await self._replay_all()
            await self._until_committed(end_offset)
            await self._revive(state)
        except BarnabasError as error:
            if not partition.is_led:  # its directory went offline for this
                return
            self.status = ShardStatus.FAILED
            logger.error("cannot load the groups of partition %d: %s", partition.index, error, extra=self._fields)
            world.timers.start(self._retry_timer, _LOAD_AGAIN_MS)
            return
        if not partition.is_led:
            return  # the coordinator, which follows the partitions, closes this shard
        self.status = ShardStatus.ACTIVE
        seconds = world.monotonic() - began
        if count and not self._has_loaded:
            logger.info(
                "groups of partition %d: %d records loaded in %.3f s",
                partition.index,
                count,
                seconds,
                extra=self._fields,
            )
        self._has_loaded = True
        world.on_loaded(self, seconds)

    async def _replay_all(self) -> tuple[int, GroupShardState]:
        """How many records there were, and what they say. Other work gets its turn after every few of them."""
        try:
            count, state, damage = await self._replay_last_values()
        except CorruptGroupRecord:
            count, state, damage = await self._replay_one_by_one()
        damage.report(logger, OFFSETS_TOPIC, self.partition.index)
        if state.groups.skipped_records:
            logger.debug(
                "skipped %d records of other kinds of groups", state.groups.skipped_records, extra=self._fields
            )
        return count, state

    async def _until_committed(self, end_offset: Offset) -> None:
        """Nobody may be told what the next leader perhaps does not know."""
        if end_offset > self.partition.high_watermark:
            told: asyncio.Future[BarnabasError | None] = self._world.loop.create_future()
            self.partition.when_committed(
                end_offset - 1, FOREVER, lambda error: None if told.done() else told.set_result(error)
            )
            if (error := await told) is not None:
                raise error

    async def _revive(self, state: GroupShardState) -> None:
        self.state = state
        group_ids = state.groups.group_ids()
        for start in range(0, len(group_ids), _REVIVED_TOGETHER):
            self.carry_out(state.revive(group_ids[start : start + _REVIVED_TOGETHER], self._world.now()))
            await asyncio.sleep(0)

    async def _replay_last_values(self) -> _Replayed:
        """Raises `CorruptGroupRecord` when one of them cannot be read."""
        replay, state, damage = Replay(), self._world.new_state(), Damage()
        count = await read_records(self.partition, self._world.buffer_bytes, replay.add_all, damage)
        is_built = False
        while not is_built:
            is_built = replay.build_into(state.groups, limit=_BUILT_TOGETHER)
            await asyncio.sleep(0)
        return _Replayed(count, state, damage)

    async def _replay_one_by_one(self) -> _Replayed:
        """Leaves out each record that cannot be read: slower, and what such a record has replaced counts."""
        state, damage = self._world.new_state(), Damage()

        def take(keys: Sequence[bytes], values: Sequence[bytes | None], offsets: Sequence[Offset]) -> None:
            for key, value, offset in zip(keys, values, offsets, strict=True):
                try:
                    state.groups.replay(key, value)
                except CorruptGroupRecord as problem:
                    damage.record(offset, problem)

        count = await read_records(self.partition, self._world.buffer_bytes, take, damage, _BUILT_TOGETHER)
        return _Replayed(count, state, damage)

    async def wait_loaded(self) -> None:
        """Until it is loaded, or has failed to."""
        while self._loading is not None and not self._loading.done():
            await asyncio.wait([self._loading])

    def close(self) -> None:
        """Not led here any more: tells all waiting callers to look elsewhere."""
        if self.status is ShardStatus.CLOSED:
            return
        self.partition.unwatch(self.close)
        if self._loading is not None:
            self._loading.cancel()
        self._give_up(ShardStatus.CLOSED)

    def _give_up(self, status: ShardStatus) -> None:
        """Forgets the state. What was appended may or may not be in the log."""
        self.status = status
        for timer in self._timers.values():
            self._world.timers.cancel(timer)
        self._timers.clear()
        self._world.timers.cancel(self._retry_timer)
        state, self.state = self.state, self._world.new_state()
        held = [*(effects for batch in self._uncommitted for effects in batch.effects), *self._unwritten]
        for batch in self._uncommitted:
            batch.is_given_up = True
        self._uncommitted.clear()
        self._unwritten.clear()
        tokens = [*state.abandon(), *(reply.token for effects in held for reply in effects.replies)]
        for token in tokens:
            token(ErrorCode.NOT_COORDINATOR)  # type: ignore[operator] # what callers of a shard give as one is called

    def _reload(self, error: BarnabasError) -> None:
        if self.status is not ShardStatus.ACTIVE:
            return
        self._reloading.warn(
            "reloading the groups of partition %d: %s",
            self.partition.index,
            error,
            topic=OFFSETS_TOPIC,
            partition=self.partition.index,
        )
        self._give_up(ShardStatus.LOADING)
        self._load()

    # -- carrying out --------------------------------------------------------------------------------------------

    def carry_out(self, effects: Effects) -> None:
        """Does what a call on the state has asked for."""
        if effects.timers:
            self._set_timers(effects)
        if effects.events:
            self._world.on_events(effects.events)
        if effects.records:
            if not self._unwritten:
                self._world.append_soon(self)
            self._unwritten.append(effects)
        else:
            for token, result in effects.replies:
                token(result)  # type: ignore[operator] # what callers of a shard give as one is called

    def _set_timers(self, effects: Effects) -> None:
        for change in effects.timers:
            key = change.key
            timer = self._timers.get(key)
            if isinstance(change, CancelTimer):
                if timer is not None:
                    self._world.timers.cancel(timer)
                    del self._timers[key]
                continue
            if timer is None:
                timer = self._timers[key] = Timer(lambda key=key: self._timer_fired(key))  # type: ignore[misc]
            if change.delay_ms:
                self._world.timers.start(timer, change.delay_ms)
            else:  # for the wheel, now is the end of its tick
                self._world.loop.call_soon(self._fire_at_once, key, timer)

    def _fire_at_once(self, key: TimerKey, timer: Timer) -> None:
        if self._timers.get(key) is timer:  # nobody has cancelled it
            self._timer_fired(key)

    def _timer_fired(self, key: TimerKey) -> None:
        if self.status is ShardStatus.LOADING:  # nothing may be written yet
            self._world.timers.start(self._timers[key], _TIMER_AGAIN_MS)
            return
        del self._timers[key]
        self.carry_out(self.state.timer_fired(key, self._world.now()))

    # -- appending -----------------------------------------------------------------------------------------------

    def append(self) -> None:
        """Everything that the calls of a tick want written, in as few batches as the topic's limit allows."""
        waiting, self._unwritten = self._unwritten, []
        if not waiting:
            return
        if len(waiting) == 1:  # however large: the log decides
            self._append_together(waiting)
            return
        bytes_max = self.partition.batch_bytes_max
        together: list[Effects] = []
        together_bytes = HEADER_BYTES
        for effects in waiting:
            size = _size_bytes(effects.records)
            if together and together_bytes + size > bytes_max:
                self._append_together(together)
                together, together_bytes = [], HEADER_BYTES
            together.append(effects)
            together_bytes += size
        self._append_together(together)

    def _append_together(self, together: list[Effects]) -> None:
        if self.status is not ShardStatus.ACTIVE:  # an earlier batch of this tick has failed
            _turn_away(together)
            return
        world = self._world
        now = world.now()
        records = [record for effects in together for record in effects.records]
        try:
            batch = build_batch(records, now.wall_ms, world.codec, self.partition.batch_bytes_max)
            last_offset = self.partition.append(batch)
        except DiskFailed as error:
            if self.status is ShardStatus.ACTIVE:
                self._uncommitted.append(_Batch(self.partition.end_offset, together))
                self._reload(error)
            else:  # the directory went offline for this, and the shard was closed
                _turn_away(together)
        except BarnabasError as error:
            self._refuse(together, error)
        else:
            appended = _Batch(last_offset, together)
            self._uncommitted.append(appended)
            deadline = (now.steady_ms + world.commit_timeout_ms) / 1000
            self.partition.when_committed(last_offset, deadline, partial(self._settled, appended))
            for _, value, change in records:
                if value is None and isinstance(change, GroupChange):
                    world.on_removed(change.group_id)

    def _refuse(self, together: list[Effects], error: BarnabasError) -> None:
        """The log wants none of it, and has none of it: the state goes on as if it had not been asked."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        told = _CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
        logger.warning(
            "groups of partition %d: a change was refused: %s", self.partition.index, error, extra=self._fields
        )
        for effects in together:
            more = self.state.refused(effects, told, self._world.now())
            _answer(effects, told)
            self.carry_out(more)

    def _settled(self, batch: _Batch, error: BarnabasError | None) -> None:
        """What has become of an append: the oldest one, because they are told in their order."""
        if batch.is_given_up:
            return
        if error is None:
            assert self._uncommitted[0] is batch
            self._uncommitted.popleft()
            self._committed(batch)
        elif not isinstance(error, KafkaError):
            self._reload(error)
        elif error.code is ErrorCode.REQUEST_TIMED_OUT:
            self._give_up_waiting(batch)
        else:
            self.close()

    def _committed(self, batch: _Batch) -> None:
        now = self._world.now()
        for effects in batch.effects:
            more = self.state.committed(effects, now)
            for token, result in effects.replies:
                token(result)  # type: ignore[operator] # what callers of a shard give as one is called
            if more is not None:
                self.carry_out(more)

    def _give_up_waiting(self, batch: _Batch) -> None:
        """The replicas have not confirmed in time. What is in the log will count; only nobody waits for it any more."""
        for effects in batch.effects:
            _answer(effects, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            effects.replies.clear()
        self._late.warn(
            "groups of partition %d: the replicas did not confirm in time",
            self.partition.index,
            topic=OFFSETS_TOPIC,
            partition=self.partition.index,
        )
        self.partition.when_committed(batch.last_offset, FOREVER, partial(self._settled, batch))

    # -- facts ---------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way to the log."""
        return not self._unwritten and not self._uncommitted


def _turn_away(together: Sequence[Effects]) -> None:
    for effects in together:
        _answer(effects, ErrorCode.NOT_COORDINATOR)


def _answer(effects: Effects, code: ErrorCode) -> None:
    for token, _ in effects.replies:
        token(code)  # type: ignore[operator] # what callers of a shard give as one is called


def _size_bytes(records: Sequence[DurableRecord]) -> int:
    size = 0
    for key, value, _ in records:  # a generator would take longer for the one that it is mostly
        size += len(key) + (0 if value is None else len(value)) + _RECORD_BYTES_MAX
    return size
