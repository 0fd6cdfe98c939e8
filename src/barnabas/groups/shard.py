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
is not yet durable apart.

Waiting callers are tokens: functions that take the result, or an `ErrorCode` when there is none. Each is called exactly
once, on whatever road the shard leaves: NOT_COORDINATOR makes a client look for its coordinator and come again.

Owner: the broker's event loop. Nothing here outlives the process but what is in the log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias, cast

from barnabas.base.clock import Moment
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.ids import Offset
from barnabas.base.logs import RepeatedWarning, fields
from barnabas.base.timers import LoopTimers, Timer
from barnabas.groups.batches import build_batch
from barnabas.groups.effects import CancelTimer, DurableRecord, Effects, StoryEvent, TimerKey
from barnabas.groups.loading import Damage, read_records
from barnabas.groups.partitions import OFFSETS_TOPIC, LedPartition
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
"""What a client of a group is told when the log refuses a record."""


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
    on_bug: Callable[[BaseException], None]
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


class GroupShard:
    """See the module's text."""

    def __init__(self, partition: LedPartition, world: ShardWorld) -> None:
        self.partition = partition
        self.status = ShardStatus.LOADING
        self.state = world.new_state()
        self._world = world
        self._timers: dict[TimerKey, Timer] = {}
        self._unwritten: list[Effects] = []
        self._uncommitted: deque[tuple[Offset, list[Effects]]] = deque()
        self._commit_timer = Timer(self._commit_timed_out)
        self._retry_timer = Timer(self._load)
        self._fields = fields(topic=OFFSETS_TOPIC, partition=partition.index)
        self._has_loaded = False
        self._reloading = RepeatedWarning(logger, world.loop.time, _WARNING_SECONDS)
        """On a full disk every commit has it loaded anew."""
        self._loading: asyncio.Task[None] | None = None
        partition.watch(self._on_partition_changed)
        self._load()

    # -- loading and ending --------------------------------------------------------------------------------------

    def _load(self) -> None:
        self.status = ShardStatus.LOADING
        self._loading = self._world.loop.create_task(self._replay_log())
        self._loading.add_done_callback(self._loading_ended)

    def _loading_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._world.on_bug(bug)

    async def _replay_log(self) -> None:
        world, partition = self._world, self.partition
        began = world.loop.time()
        try:
            async with world.loading_turn:
                count = await self._replay_all()
        except BarnabasError as error:
            if not partition.is_led:  # its directory went offline for this
                return
            self.status = ShardStatus.FAILED
            logger.error("groups of partition %d cannot be loaded: %s", partition.index, error, extra=self._fields)
            world.timers.start(self._retry_timer, _LOAD_AGAIN_MS)
            return
        if not partition.is_led:
            return  # whoever follows the partitions closes this shard
        self.status = ShardStatus.ACTIVE
        seconds = world.loop.time() - began
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

    async def _replay_all(self) -> int:
        """How many records there were. Other work gets its turn after every few of them."""
        world = self._world
        try:
            count, state, damage = await self._replay_last_values()
        except CorruptGroupRecord:
            count, state, damage = await self._replay_one_by_one()
        damage.report(logger, OFFSETS_TOPIC, self.partition.index)
        if state.groups.skipped_records:
            logger.debug("%d records are of other kinds of groups", state.groups.skipped_records, extra=self._fields)
        self.state = state
        group_ids = state.groups.group_ids()
        for start in range(0, len(group_ids), _REVIVED_TOGETHER):
            self.carry_out(state.revive(group_ids[start : start + _REVIVED_TOGETHER], world.now()))
            await asyncio.sleep(0)
        return count

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
        """Not led here any more: everybody who waits is told to look elsewhere."""
        if self.status is ShardStatus.CLOSED:
            return
        self.partition.unwatch(self._on_partition_changed)
        if self._loading is not None:
            self._loading.cancel()
        self._give_up(ShardStatus.CLOSED)

    def _give_up(self, status: ShardStatus) -> None:
        """Forgets the state. What was appended may or may not be in the log."""
        self.status = status
        for timer in self._timers.values():
            self._world.timers.cancel(timer)
        self._timers.clear()
        self._world.timers.cancel(self._commit_timer)
        self._world.timers.cancel(self._retry_timer)
        state, self.state = self.state, self._world.new_state()
        held = [*(effects for _, many in self._uncommitted for effects in many), *self._unwritten]
        self._uncommitted.clear()
        self._unwritten.clear()
        tokens = [*state.abandon(), *(reply.token for effects in held for reply in effects.replies)]
        for token in tokens:
            cast(Token, token)(ErrorCode.NOT_COORDINATOR)

    def _reload(self, error: BarnabasError) -> None:
        if self.status is not ShardStatus.ACTIVE:
            return
        self._reloading.warn(
            "groups of partition %d are loaded anew: %s",
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
                cast(Token, token)(result)

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
        if len(waiting) == 1:  # however large: the log is to judge it
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
        records = [record for effects in together for record in effects.records]
        try:
            batch = build_batch(records, world.now().wall_ms, world.codec, self.partition.batch_bytes_max)
            last_offset = self.partition.append(batch, self._reload)
        except DiskFailed as error:
            if self.status is ShardStatus.ACTIVE:
                self._uncommitted.append((self.partition.end_offset, together))
                self._reload(error)
            else:  # the directory went offline for this, and the shard was closed
                _turn_away(together)
        except BarnabasError as error:
            self._refuse(together, error)
        else:
            if not self._uncommitted:
                world.timers.start(self._commit_timer, world.commit_timeout_ms)
            self._uncommitted.append((last_offset, together))
            for _, value, change in records:
                if value is None and isinstance(change, GroupChange):
                    world.on_removed(change.group_id)

    def _refuse(self, together: list[Effects], error: BarnabasError) -> None:
        """The log wants none of it, and has none of it: the state goes on as if it had not been asked."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        told = _CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
        logger.warning(
            "groups of partition %d: a change is refused: %s", self.partition.index, error, extra=self._fields
        )
        for effects in together:
            more = self.state.refused(effects, told, self._world.now())
            _answer(effects, told)
            self.carry_out(more)

    def _on_partition_changed(self) -> None:
        if not self.partition.is_led:
            self.close()
            return
        uncommitted = self._uncommitted
        if not uncommitted:
            return
        high_watermark = self.partition.high_watermark
        now = self._world.now()
        while uncommitted and uncommitted[0][0] < high_watermark:
            _, together = uncommitted.popleft()
            for effects in together:
                more = self.state.committed(effects, now)
                for token, result in effects.replies:
                    cast(Token, token)(result)
                if more is not None:
                    self.carry_out(more)
        if uncommitted:
            self._world.timers.start(self._commit_timer, self._world.commit_timeout_ms)
        else:
            self._world.timers.cancel(self._commit_timer)

    def _commit_timed_out(self) -> None:
        """The replicas have not confirmed in time. What is in the log will count; only nobody waits for it any more."""
        for _, together in self._uncommitted:
            for effects in together:
                _answer(effects, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                effects.replies.clear()
        logger.warning(
            "groups of partition %d: the replicas do not confirm in time", self.partition.index, extra=self._fields
        )

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
        cast(Token, token)(code)


def _size_bytes(records: Sequence[DurableRecord]) -> int:
    return sum(len(key) + (0 if value is None else len(value)) + _RECORD_BYTES_MAX for key, value, _ in records)
