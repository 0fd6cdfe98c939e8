"""A consumer that shares topics with the other members of its group.

```python
async with GroupConsumer(cluster, GroupOptions("billing")) as consumer:
    consumer.subscribe(["orders"])
    async for record in consumer.records():
        print(record.partition, record.offset, record.value)
```

`poll` returns runs of batches as `Consumer.poll` does. Whatever must not surprise the caller happens only there:
partitions are assigned and revoked, the listener is called, and errors are raised. A rebalance itself continues between
two calls. A separate task sends heartbeats, so that a slow caller stays a member as long as it polls again
within `max_poll_interval_ms`; when it does not, the member leaves, and its partitions are lost at the next `poll`.

What was handed out is done when the caller comes back for more; that is what is committed automatically, now and then,
before partitions are given up, and at the end. Leaving the block by an error counts nothing as done that was not. So
every record is processed at least once.

| what happened | listener calls | meanwhile |
|---|---|---|
| a rebalance, eager | `on_revoked` of everything, then `on_assigned` of everything | nothing is read |
| a rebalance, cooperative | `on_revoked` of what goes, `on_assigned` of what comes | what stays is read on |
| the coordinator excluded us | `on_lost` of everything | |
| `close` | `on_revoked` of everything | |

A consumer belongs to one task. For a signal: `loop.add_signal_handler(signal.SIGTERM, consumer.stop)`; then `poll`
returns, `records` ends, and leaving the block commits and leaves the group.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.errors import UnknownTopic
from barnabas.client.group.assignors import assignors_named
from barnabas.client.group.group_commits import AutomaticCommits
from barnabas.client.group.group_offsets import OffsetAndMetadata
from barnabas.client.group.group_places import Places, find_places
from barnabas.client.group.group_progress import Progress
from barnabas.client.group.group_subscription import TopicSubscription
from barnabas.client.group.member_options import GroupOptions, NoCommittedOffset, RebalanceListener
from barnabas.client.group.membership import Joined, MemberOptions, Membership
from barnabas.client.reading.consumer import Consumer
from barnabas.client.reading.fetched import ConsumedRecord, FetchedRun
from barnabas.net.errors import NetworkFailed
from barnabas.wire.errors import ErrorCode, KafkaError

_LOG = logging.getLogger(__name__)

_POLL_TIMEOUT_EXPIRED: Final = "consumer poll timeout has expired"
_CLOSED: Final = "the consumer is being closed"
_LEAVE_SECONDS_MAX: Final = 3.0


@dataclass(frozen=True, slots=True)
class _Rebalanced:
    joined: Joined
    places: Places
    """Where to begin what is new."""


class GroupConsumer:
    """Stands on a `Cluster`, which its owner closes after it."""

    def __init__(self, cluster: Cluster, options: GroupOptions) -> None:
        self._cluster = cluster
        self._options = options
        assignors = assignors_named(options.assignors)
        self._is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        member = MemberOptions(
            options.group, options.instance_id, options.session_timeout_ms, options.max_poll_interval_ms, options.rack
        )
        self._membership = Membership(cluster, member, assignors)
        self._consumer = Consumer(cluster, replace(options.consumer, out_of_range=options.auto_offset_reset.value))
        self._listener = RebalanceListener()
        self._progress = Progress()
        self._subscription = TopicSubscription(cluster)
        self._commits = AutomaticCommits(
            options.group, self._membership, self._progress, options.auto_commit_interval_ms, self._wake
        )
        self._previous: frozenset[TopicPartition] = frozenset()
        """What the last rebalance brought."""
        self._join_reason: str | None = None
        self._joining: asyncio.Task[_Rebalanced] | None = None
        self._heart: asyncio.Task[None] | None = None
        self._lookout: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        """Something happened that `poll` must look at."""
        self._is_polling = False
        self._polled_at = 0.0
        self._failure: KafkaError | None = None
        self._is_stopped = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(is_done=error is None)

    # --- the caller's -------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Collection[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads these topics, or all whose whole names match the pattern, also those that come later."""
        self._subscription.choose(topics, pattern)
        self._listener = listener or self._listener
        self._ask_to_join("the subscription changed" if self._membership.is_member else "the consumer is new")

    async def poll(self, timeout_seconds: float | None = None) -> list[FetchedRun]:
        """Waits for records and returns all that came together; nothing when the time is over, or after `stop`.

        Raises what the coordinator refuses for good: FENCED_INSTANCE_ID, INCONSISTENT_GROUP_PROTOCOL, and the like.
        """
        assert self._subscription.is_chosen, "subscribe first"
        loop = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else loop.time() + timeout_seconds
        self._progress.finish()
        self._is_polling = True
        try:
            while not self._is_stopped:
                self._changed.clear()
                await self._follow_group()
                commit_due = self._commits.start_when_due() if self._joining is None else None
                if runs := await self._wait(deadline, commit_due):
                    for run in runs:
                        self._progress.hand_out(run.partition, run.next_offset)
                    return runs
                if deadline is not None and loop.time() >= deadline:
                    break
        finally:
            self._is_polling = False
            self._polled_at = loop.time()
        return []

    async def records(self) -> AsyncIterator[ConsumedRecord]:
        """Every record that the group has for us, in order within a partition, until `stop`."""
        while not self._is_stopped:
            runs = await self.poll()
            # Only what the caller has seen is handed out, record by record.
            for run in reversed(runs):
                self._progress.hand_out(run.partition, run.first_offset)
            for run in runs:
                for record in run.records():
                    self._progress.finish()
                    self._progress.hand_out(run.partition, record.offset + 1)
                    yield record
                    if self._is_stopped:
                        return
                self._progress.hand_out(run.partition, run.next_offset)

    def stop(self) -> None:
        """Lets `poll` return and `records` end. May be called by a signal handler of the loop."""
        self._is_stopped = True
        self._wake()

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    async def commit(self, offsets: Mapping[TopicPartition, Offset | OffsetAndMetadata] | None = None) -> None:
        """Commits these offsets, or (without any) behind all that was handed out so far; returns when it is durable.

        REBALANCE_IN_PROGRESS: `poll`, and commit again. UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION: the partitions are lost.
        """
        wanted = self._progress.uncommitted_positions() if offsets is None else offsets
        try:
            await self._membership.commit(wanted)
        except KafkaError as error:
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS and self._joining is None:
                self._ask_to_join("a commit failed because of a rebalance")
            raise
        self._progress.note_committed(wanted)

    def seek(self, partition: TopicPartition, offset: Offset) -> None:
        assert partition in self.assignment, f"{partition} is not assigned"
        if partition in self._progress.homeless:
            self._consumer.add(partition, offset)
        else:
            self._consumer.seek(partition, offset)
        self._progress.seek(partition, offset)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Brings nothing of these until `resume`; they stay ours."""
        for partition in partitions:
            self._consumer.pause(partition)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._consumer.resume(partition)
        self._wake()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._progress.partitions

    @property
    def positions(self) -> Mapping[TopicPartition, Offset]:
        """Behind what was handed out last, for each assigned partition."""
        return self._progress.positions

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._consumer.paused

    @property
    def problem(self) -> Exception | None:
        """Why nothing can be fetched now, or the group not be joined; None while all is well."""
        return self._consumer.problem or self._cluster.problem

    @property
    def member_id(self) -> str:
        return self._membership.member_id

    @property
    def generation(self) -> int:
        """-1 while we are not a member."""
        return self._membership.generation

    async def close(self, reason: str = _CLOSED, *, leave: bool | None = None, is_done: bool = True) -> None:
        """Commits what is done (where commits are automatic), gives the partitions up and leaves; bounded in time.

        A static member does not leave unless it is told to: it may come back, and its partitions wait for it. Without
        `is_done`, what was handed out last counts as not processed.
        """
        self._is_stopped = True
        await self._cancel_tasks()
        if is_done:
            self._progress.finish()
        try:
            if self._membership.is_lost:
                await self._lose()
            await self._give_up(self.assignment)
        finally:
            try:
                if leave if leave is not None else not self._membership.is_static:
                    await self._membership.leave(reason, timeout_seconds=_LEAVE_SECONDS_MAX)
            except (NetworkFailed, KafkaError) as error:
                # The coordinator will miss it when its session is over.
                _LOG.warning("left without a word", extra={"group": self._options.group, "problem": str(error)})
            finally:
                await self._membership.close()
                await self._consumer.close()

    async def _cancel_tasks(self) -> None:
        tasks = [task for task in (self._joining, self._heart, self._lookout) if task is not None]
        self._joining = self._heart = self._lookout = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._commits.cancel()

    # --- following the group ------------------------------------------------------------------------------------

    async def _follow_group(self) -> None:
        """Does what is due, without waiting for other members. Whatever is cut short here is done by the next call."""
        if self._heart is None:
            self._heart = asyncio.create_task(self._beat())
        if self._lookout is None:
            self._lookout = asyncio.create_task(self._watch_topics())
        if self._failure is not None:
            failure, self._failure = self._failure, None
            if self._heart.done():  # it ended with this failure
                self._heart = None
            raise failure
        if self._joining is not None:
            if not self._joining.done():
                return
            try:
                rebalanced = self._joining.result()
            except BaseException:
                self._joining = None
                self._ask_to_join("the last attempt failed")
                raise
            await self._take_over(rebalanced)
            self._joining = None
        if self._membership.is_lost:
            await self._lose()
            self._ask_to_join("the coordinator no longer knew this member")
        if self._join_reason is not None:
            if not self._is_cooperative:
                await self._give_up(self.assignment)
            reason, self._join_reason = self._join_reason, None
            self._joining = asyncio.create_task(self._join(reason))
            self._joining.add_done_callback(lambda _: self._wake())
        if self._progress.homeless and self._joining is None:
            raise NoCommittedOffset(self._options.group, self._progress.homeless)

    async def _join(self, reason: str) -> _Rebalanced:
        """All of a rebalance that needs nothing of the caller."""
        topics = await self._subscription.topics()
        owned = self.assignment if self._is_cooperative else frozenset()
        joined = await self._membership.join(topics, owned, self._previous, reason)
        new = joined.assignment - (frozenset() if joined.was_lost else owned)
        return _Rebalanced(joined, await find_places(self._cluster, self._options, new))

    async def _take_over(self, rebalanced: _Rebalanced) -> None:
        joined, places = rebalanced.joined, rebalanced.places
        self._subscription.watch(joined.counts)
        self._previous = joined.assignment
        if joined.was_lost:
            await self._lose()
        going = self.assignment - joined.assignment
        if going:
            await self._give_up(going)
            self._ask_to_join("partitions were revoked for other members")
        new = joined.assignment - self.assignment
        for partition in sorted(new):
            offset, committed = places.positions.get(partition), places.committed.get(partition)
            self._progress.begin(partition, offset, None if committed is None else committed.offset)
            if offset is not None:
                self._consumer.add(partition, offset)
        counted = {"generation": self.generation, "partitions": len(joined.assignment), "new": len(new)}
        _LOG.info("assigned", extra={"group": self._options.group, **counted})
        await self._listener.on_assigned(new)

    async def _give_up(self, partitions: frozenset[TopicPartition]) -> None:
        """While they are still ours: commit, tell the listener, and read them no more."""
        if not partitions:
            return
        await self._commits.finish(partitions)
        try:
            await self._listener.on_revoked(partitions)
        finally:
            self._drop(partitions)

    async def _lose(self) -> None:
        self._membership.is_lost = False
        partitions = self.assignment
        self._drop(partitions)
        if partitions:
            _LOG.warning("partitions were lost", extra={"group": self._options.group, "partitions": len(partitions)})
            await self._listener.on_lost(partitions)

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._consumer.drop(partition)
        self._progress.end(partitions)

    def _ask_to_join(self, reason: str) -> None:
        self._join_reason = self._join_reason or reason
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._consumer.wake()

    async def _wait(self, *due: float | None) -> list[FetchedRun]:
        """For records, for a time that is due, or for something to do about the group."""
        if self._changed.is_set():
            return []
        times = [time for time in due if time is not None]
        left_seconds = max(0.0, min(times) - asyncio.get_running_loop().time()) if times else None
        if self._consumer.is_reading:
            try:
                return await self._consumer.poll(left_seconds)
            except UnknownTopic:
                self._forget_deleted_topics()
                return []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_seconds):
                await self._changed.wait()
        return []

    def _forget_deleted_topics(self) -> None:
        view = self._cluster.view
        sizes = {name: len(topic.partitions) for name, topic in view.topics.items()}
        self._drop([one for one in self.assignment if one.partition >= sizes.get(one.topic, 0)])
        self._ask_to_join("a topic was deleted")

    # --- between two polls ----------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """The heart: it tells the coordinator that we live, and looks whether the caller does.

        It does nothing else: whatever waits for another broker must not hold up a heartbeat.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._options.heartbeat_interval_ms / 1000)
            try:
                if self._membership.is_member:
                    idle_seconds = 0.0 if self._is_polling else loop.time() - self._polled_at
                    if idle_seconds > self._options.max_poll_interval_ms / 1000:
                        await self._fall_silent()
                    elif not await self._membership.heartbeat() and self._joining is None:
                        self._ask_to_join("a rebalance is in progress")
            except (NetworkFailed, KafkaError) as error:
                if isinstance(error, KafkaError) and not error.code.is_retriable:
                    self._failure = error
                    self._wake()
                    return
                _LOG.debug("heartbeat failed", extra={"group": self._options.group, "problem": str(error)})

    async def _fall_silent(self) -> None:
        """The caller is stuck, so others should get its partitions. A static member just lets its session end."""
        limit = {"max_poll_interval_ms": self._options.max_poll_interval_ms}
        _LOG.warning("poll was not called in time", extra={"group": self._options.group, **limit})
        joining, self._joining = self._joining, None
        if joining is not None:
            joining.cancel()
            await asyncio.wait([joining])
        self._membership.withdraw()
        if not self._membership.is_static:
            await self._membership.leave(_POLL_TIMEOUT_EXPIRED, timeout_seconds=_LEAVE_SECONDS_MAX)

    async def _watch_topics(self) -> None:
        """Looks for new topics and partitions, now and then."""
        while True:
            await asyncio.sleep(self._options.metadata_interval_ms / 1000)
            try:
                await self._look_for_topics()
            except (NetworkFailed, KafkaError) as error:
                if isinstance(error, KafkaError) and not error.code.is_retriable:
                    self._failure = error
                    self._wake()
                _LOG.debug("no look at the topics", extra={"group": self._options.group, "problem": str(error)})

    async def _look_for_topics(self) -> None:
        if await self._subscription.has_other_topics():
            self._ask_to_join("topics that match the pattern were created or deleted")
        resized = await self._subscription.resized_topic()
        if resized is not None:
            self._ask_to_join(f"the partitions of topic '{resized}' have changed")
