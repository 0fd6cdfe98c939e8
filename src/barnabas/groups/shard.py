"""The groups of one partition of `__consumer_offsets`, driven: what the pure state asks for is done here.

```
              follow                     all read, all replayed
   (new) ───────────────▶ LOADING ───────────────────────────────▶ ACTIVE
                             ▲                                       │ an append whose fate nobody knows
                             └───────────────────────────────────────┘
   LOADING: a record that cannot be read ──▶ FAILED                 any ── not led here any more ──▶ CLOSED
```

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

from barnabas.base.errors import BarnabasError, CorruptBatch, DiskFailed
from barnabas.base.ids import Offset
from barnabas.base.logs import RepeatedWarning
from barnabas.base.timers import LoopTimers, Timer
from barnabas.groups.batches import build_batch
from barnabas.groups.effects import CancelTimer, DurableRecord, Effects, StoryEvent, TimerKey
from barnabas.groups.loading import read_records
from barnabas.groups.partitions import LedPartition
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
    now_ms: Callable[[], int]
    """Wall-clock time that does not jump."""
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
        except (CorruptBatch, CorruptGroupRecord, DiskFailed) as error:
            if not partition.is_led:  # its directory went offline for this
                return
            self.status = ShardStatus.FAILED
            logger.error("groups of partition %d cannot be loaded: %s", partition.index, error)
            return
        if not partition.is_led:
            return  # whoever follows the partitions closes this shard
        self.status = ShardStatus.ACTIVE
        seconds = world.loop.time() - began
        if count and not self._has_loaded:
            logger.info("groups of partition %d: %d records loaded in %.3f s", partition.index, count, seconds)
        self._has_loaded = True
        world.on_loaded(self, seconds)

    async def _replay_all(self) -> int:
        """How many records there were. Other work gets its turn after every few of them."""
        world = self._world
        replay, state = Replay(), world.new_state()
        count = await read_records(self.partition, world.buffer_bytes, replay.add_all)
        is_built = False
        while not is_built:
            is_built = replay.build_into(state, limit=_BUILT_TOGETHER)
            await asyncio.sleep(0)
        self.state = state
        group_ids = state.group_ids()
        for start in range(0, len(group_ids), _REVIVED_TOGETHER):
            self.carry_out(state.revive(group_ids[start : start + _REVIVED_TOGETHER], world.now_ms()))
            await asyncio.sleep(0)
        return count

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
        self._reloading.warn("groups of partition %d are loaded anew: %s", self.partition.index, error)
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
        self.carry_out(self.state.timer_fired(key, self._world.now_ms()))

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
            last_offset = self.partition.append(build_batch(records, world.now_ms(), world.codec), self._reload)
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
        logger.warning("groups of partition %d: a change is refused: %s", self.partition.index, error)
        for effects in together:
            more = self.state.refused(effects, told, self._world.now_ms())
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
        now_ms = self._world.now_ms()
        while uncommitted and uncommitted[0][0] < high_watermark:
            _, together = uncommitted.popleft()
            for effects in together:
                more = self.state.committed(effects, now_ms)
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
        logger.warning("groups of partition %d: the replicas do not confirm in time", self.partition.index)

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
