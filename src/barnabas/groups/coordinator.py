"""All groups that this broker coordinates: the shards of the partitions of `__consumer_offsets` that it leads.

A group belongs to the partition that its name hashes to, and its coordinator is that partition's leader. `follow` gets
the partitions led here and brings the shards in line: new ones load, lost ones tell their callers to look elsewhere,
one in a later epoch starts over. Every request gets its shard from `shard_for`, which answers
COORDINATOR_LOAD_IN_PROGRESS while the shard loads, and NOT_COORDINATOR where there is none.

`sweep` looks for expired offsets, group by group, and lets other work in between; so does `topics_deleted`.

Owner: the broker's event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final
from uuid import UUID

from barnabas.base.clock import Clock, Moment
from barnabas.base.ids import SteadyMs
from barnabas.base.logs import fields
from barnabas.base.timers import LoopTimers
from barnabas.base.uuid import new_uuid
from barnabas.groups.effects import Outcome, RebalanceCompleted, StoryEvent
from barnabas.groups.measures import GroupMeasures
from barnabas.groups.offsets import TOGETHER_MAX
from barnabas.groups.partitions import LedPartition, partition_of
from barnabas.groups.settings import GroupSettings
from barnabas.groups.shard import GroupShard, ShardStatus, ShardWorld
from barnabas.groups.state import GroupShardState
from barnabas.groups.transitions import GroupState
from barnabas.records.batch import Codec
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_ACTIVE: Final = ShardStatus.ACTIVE
"""A member of an enumeration takes long to look up."""
_PARTITIONS_REMEMBERED_MAX: Final = 50_000


class GroupCoordinator:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        random: Random,
        settings: GroupSettings,
        measures: GroupMeasures,
        *,
        codec: Codec,
        load_buffer_bytes: int,
        commit_timeout_ms: int,
        before_write: Callable[[Callable[[], None]], None],
        on_events: Callable[[Sequence[StoryEvent]], None],
        on_removed: Callable[[str], None],
    ) -> None:
        """`before_write` has a function called before the tick of appends writes, which may stage more for it.

        `on_events` is called with the story, `on_removed` with a group that is gone for good.
        """
        self._before_write = before_write
        self._clock = clock
        self.now = clock.moment
        self.measures = measures
        self._on_events = on_events
        self._timers = LoopTimers(loop, clock)
        self._world = ShardWorld(
            loop=loop,
            timers=self._timers,
            now=self.now,
            new_state=lambda: GroupShardState(settings, lambda: str(new_uuid(random))),
            on_events=self._hear,
            append_soon=self._append_soon,
            on_removed=on_removed,
            on_loaded=self._on_loaded,
            monotonic=clock.monotonic,
            buffer_bytes=load_buffer_bytes,
            codec=codec,
            commit_timeout_ms=commit_timeout_ms,
            loading_turn=asyncio.Lock(),
        )
        self._appending: list[GroupShard] = []
        self._shards: dict[int, GroupShard] = {}
        self._partition_count = 0
        self._partition_of: dict[str, int] = {}
        """The hashes of names that were asked for: a beat must not cost one."""

    def __iter__(self) -> Iterator[GroupShard]:
        return iter(tuple(self._shards.values()))

    def steady_ms(self) -> SteadyMs:
        """For a heartbeat, which needs no more."""
        return self._clock.steady_ms()

    # -- finding -------------------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """The partition that a group belongs to, of the topic as it is."""
        index = self._partition_of.get(group_id)
        if index is None:
            index = partition_of(group_id, self._partition_count)
            if len(self._partition_of) >= _PARTITIONS_REMEMBERED_MAX:
                self._partition_of.clear()
            self._partition_of[group_id] = index
        return index

    def shard_for(self, group_id: str) -> GroupShard:
        """The shard that a group belongs to, ready to be asked; KafkaError when it is not here, or not yet."""
        if not self._partition_count:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "the topic for groups does not exist yet")
        shard = self._shards.get(self.partition_of(group_id))
        if shard is None or shard.status is not _ACTIVE:
            raise _not_here(shard)
        return shard

    def state_for(self, group_id: str) -> GroupShardState:
        """What is known of a group, to read it."""
        return self.shard_for(group_id).state

    @property
    def is_loading(self) -> bool:
        return any(shard.status is ShardStatus.LOADING for shard in self._shards.values())

    # -- following -----------------------------------------------------------------------------------------------

    def follow(self, led: Mapping[int, LedPartition], partition_count: int) -> None:
        """This broker now leads these of the topic's `partition_count` partitions (0: there is no topic)."""
        if partition_count != self._partition_count:
            self._partition_count = partition_count
            self._partition_of.clear()
        for index in [index for index, shard in self._shards.items() if led.get(index) is not shard.partition]:
            self._shards.pop(index).close()
        for index, partition in led.items():
            if index not in self._shards:
                self._shards[index] = GroupShard(partition, self._world)

    async def topics_deleted(self, topics: Mapping[str, UUID]) -> None:
        """Removes the offsets of topics that no longer exist, given by name and id."""
        for shard in self._active():
            state, done = shard.state, 0
            for effects in state.topics_deleted(topics):
                if shard.state is not state:  # it was reloaded, or is led elsewhere
                    break
                shard.carry_out(effects)
                done += 1 + len(effects.records)
                if done >= TOGETHER_MAX:
                    done = 0
                    await asyncio.sleep(0)

    def _active(self) -> list[GroupShard]:
        return [shard for shard in self._shards.values() if shard.status is ShardStatus.ACTIVE]

    async def wait_loaded(self) -> None:
        for shard in self:
            await shard.wait_loaded()

    def close(self) -> None:
        """Tells all waiting callers to look elsewhere; no timer fires any more."""
        self.follow({}, 0)
        self._timers.stop()

    # -- expiry --------------------------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """Looks at every group once for offsets that have expired."""
        now = Moment(self._clock.settled_ms(), self._clock.steady_ms())
        for shard in self._active():
            looked_at = 0
            for group_id in shard.state.groups.group_ids():
                if shard.status is not ShardStatus.ACTIVE:
                    break
                state = shard.state
                steps = 1 + min(state.offset_count(group_id), TOGETHER_MAX)
                looked_at += steps
                self._clock.worked(steps)
                for effects in state.expire_offsets(group_id, now):
                    if shard.state is not state:  # it was reloaded, or is led elsewhere
                        break
                    if effects.records:
                        self.measures.offsets_expired.value += len(effects.records)
                        shard.carry_out(effects)
                    if looked_at >= TOGETHER_MAX:
                        looked_at = 0
                        await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def keep_sweeping(self, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self.sweep()

    # -- facts ---------------------------------------------------------------------------------------------------

    def groups(self) -> Iterator[tuple[str, GroupShardState]]:
        """Every group by name, with the state to ask. It may go on while groups come and go."""
        for shard in self._active():
            for group_id in shard.state.groups.group_ids():
                yield group_id, shard.state

    def counts(self) -> dict[GroupState, int]:
        """How many groups there are in each state."""
        totals: dict[GroupState, int] = {}
        for shard in self._active():
            for state, count in shard.state.groups.counts().items():
                totals[state] = totals.get(state, 0) + count
        return totals

    def _append_soon(self, shard: GroupShard) -> None:
        """All shards append together, at the end of the tick that writes for all of them."""
        self._appending.append(shard)
        if len(self._appending) == 1:
            self._before_write(self._append)

    def _append(self) -> None:
        appending, self._appending = self._appending, []
        for shard in appending:
            shard.append()

    def _hear(self, events: Sequence[StoryEvent]) -> None:
        for event in events:
            if isinstance(event, RebalanceCompleted):
                self.measures.rebalances.value += 1
                if event.outcome is not Outcome.INTERRUPTED:
                    logger.info(
                        "group %s is %s: generation %d, members: %d",
                        *(event.group_id, event.outcome.value, event.generation_after, event.members_after),
                        extra=fields(group=event.group_id, generation=event.generation_after),
                    )
        self._on_events(events)

    def _on_loaded(self, shard: GroupShard, seconds: float) -> None:
        self.measures.load_seconds.observe(seconds)


def _not_here(shard: GroupShard | None) -> KafkaError:
    if shard is not None and shard.status is ShardStatus.LOADING:
        return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the groups are being loaded")
    return KafkaError(ErrorCode.NOT_COORDINATOR, "another broker coordinates this group")
