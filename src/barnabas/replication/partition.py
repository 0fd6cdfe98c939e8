"""A partition that this broker leads: its log, how far it is written and committed, and who waits for which offset.

Handlers talk to this, never to a log. Append, commit and acknowledgement are three events:

```
append ── staged ──> AppendTick ──> write ──> synced, where the topic asks for it ──> high watermark above it
                                      │                      │                                  │
                                      └── `when_committed`: acks 0 and 1 are called here        └── acks -1 here
```

Offsets. Everything below the *own end* is in the leader's log as the topic asks for it: written, or written and synced
(`flush.messages`, `flush.ms`). Everything below the high watermark is on every in-sync replica; clients see no more.
Alone (no other broker is in sync) it follows the own end; with others it moves by `commit`, and may lag the end of the
log by any amount. It does not move while fewer replicas are in sync than `min.insync.replicas` asks for.

```
 log start          high watermark         own end        end offset       staged end
     |  readable         |  uncommitted       |  unsynced     |  unwritten      |
-----+-------------------+--------------------+---------------+-----------------+--->  offsets
```

A partition is one leadership: a later epoch, even of this broker, has another object. When it ends (`close`), staged
batches are taken back, all waiting callers are notified, and nothing can be staged any more.

Owner: the broker's event loop.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from uuid import UUID

from barnabas.base.buffers import Buffer
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.ids import NO_EPOCH, LeaderEpoch, Offset, SteadyMs, TopicPartition
from barnabas.replication.leader import CommittedState, Fetched, FollowerLag, Grant, LeaderState, Proposal
from barnabas.replication.partition_reading import PartitionReading
from barnabas.replication.tick import AppendTick
from barnabas.replication.waiting import ALL_ACKS, FOREVER, Waiters, WhenCommitted
from barnabas.storage.log.log import Log
from barnabas.storage.log.staging import Appended
from barnabas.storage.log.validate import AcceptedBatch, BatchCheck
from barnabas.storage.producers.producer_state import Origin, ProducerState
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, KafkaError


class Partition(PartitionReading):
    __slots__ = (
        "_deadline",
        "_flush",
        "_followers",
        "_follows_own_end",
        "_has_enough",
        "_is_flush_awaited",
        "_is_minimum_the_topics",
        "_is_staged",
        "_log",
        "_on_failure",
        "_on_joinable",
        "_on_taken_out",
        "_own_end",
        "_refusal",
        "_start_waiters",
        "_tick",
        "_timer",
        "_timer_deadline",
        "_waiters",
        "end_watchers",
        "is_admitting",
        "is_closed",
        "is_internal",
        "leader",
        "leader_epoch",
        "name",
        "replica_watchers",
        "topic_id",
        "traffic",
        "watchers",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: UUID,
        log: Log,
        tick: AppendTick,
        *,
        is_internal: bool = False,
        flush: Callable[[TopicPartition], None] = lambda name: None,
        on_failure: "Callable[[Partition, DiskFailed], None]" = lambda partition, failure: None,
        on_joinable: "Callable[[Partition], None]" = lambda partition: None,
        on_taken_out: "Callable[[Partition], None]" = lambda partition: None,
    ) -> None:
        """`flush` starts to sync the log if that is due; `flushed` reports its end.

        `on_failure` is called when the disk fails: the owner of the directories decides what becomes of the log.
        `on_joinable` is called when a follower has caught up that is not in sync, `on_taken_out` when the controller
        has taken one out of the ISR unasked.
        """
        self.name = name
        self.topic_id = topic_id
        self._log = log
        self._tick = tick
        self._flush = flush
        self._on_failure = on_failure
        self._on_joinable = on_joinable
        self._on_taken_out = on_taken_out
        self.traffic = log.traffic
        self.is_internal = is_internal
        self.is_closed = False
        self.is_admitting = False
        """Whether clients' batches wait to be checked (`barnabas.replication.admission`); those that come wait, too."""
        self.leader = -1
        self.leader_epoch: LeaderEpoch = NO_EPOCH
        self.watchers: dict[Callable[[Partition], None], None] = {}
        """Called when the high watermark moves, and at the end; a dict, because it is a set with an order."""
        self.replica_watchers: dict[Callable[[Partition], None], None] = {}
        """Called when the log has grown, and at the end."""
        self.end_watchers: dict[Callable[[Partition], None], None] = {}
        """Called at the end alone."""
        self._refusal: BarnabasError | None = None
        """Why nothing can be appended."""
        self._is_staged = False
        """Whether the tick knows that there is something to write."""
        self._own_end = log.end_offset
        self._follows_own_end = False
        """Whether nobody else must have a record before it is committed. Then `_followers` is not told every write."""
        self._followers: LeaderState | None = None
        """From the beginning of the leadership on."""
        self._has_enough = False
        """Whether as many replicas are in sync as acks=all asks for."""
        self._is_minimum_the_topics = True
        self._is_flush_awaited = False
        """Whether what is written waits for a flush: then so does what is written after it."""
        self._start_waiters: list[tuple[Offset, asyncio.Future[None]]] = []
        self._waiters = Waiters()
        self._deadline = FOREVER
        """No deadline of those who wait is earlier."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline = FOREVER

    # -- leadership ----------------------------------------------------------------------------------------------

    def lead(self, grant: Grant) -> None:
        """Takes the leadership that the cluster's metadata gives to this broker, or its newer state."""
        assert not self.is_closed
        assert self.leader_epoch in (NO_EPOCH, grant.leader_epoch), "another epoch is another leadership"
        if self._followers is None:
            self._begin(grant)
        else:
            state, followers = self._committed_state(grant), self._followers
            is_taken_out = followers.state.isr.keys() > state.isr.keys() and not followers.is_proposed(state.isr)
            followers.told(state)
            if is_taken_out:
                self._on_taken_out(self)
        self._look_who_is_in_sync()

    def _begin(self, grant: Grant) -> None:
        log, now_ms = self._log, self._tick.steady_ms()
        self.leader, self.leader_epoch = grant.leader, grant.leader_epoch
        self._followers = LeaderState(
            grant.leader,
            grant.broker_epoch,
            grant.leader_epoch,
            log.end_offset,
            log.high_watermark,
            self._committed_state(grant),
            now_ms,
        )
        if log.awaits_flush(now_ms):  # a follower still syncs it, or a killed process left it and there was no room
            self._own_end = log.recovery_point
            self._is_flush_awaited = True
            self._settle(now_ms)

    def _committed_state(self, grant: Grant) -> CommittedState:
        self._is_minimum_the_topics = grant.minimum is None
        minimum = self._log.config.min_insync_replicas if grant.minimum is None else grant.minimum
        return CommittedState(
            grant.partition_epoch, grant.isr, min(minimum, len(grant.replicas)), grant.replicas, grant.offline
        )

    def configure(self, config: LogConfig) -> None:
        """The settings of the topic have changed."""
        self._log.config = config
        if self._followers is not None and self._is_minimum_the_topics:
            self._followers.set_minimum(config.min_insync_replicas)
            self._look_who_is_in_sync()

    def _look_who_is_in_sync(self) -> None:
        followers = self._followers
        assert followers is not None, "it leads"
        self._follows_own_end, self._has_enough = followers.is_alone, followers.has_enough
        followers.written(self._own_end, self._tick.steady_ms())
        self.commit(followers.high_watermark)
        self._tell_starts()
        if not self._has_enough and self._waiters.uncommitted:
            self._waiters.fail_uncommitted(self._too_few(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
            self._tick.told()
        if followers.has_joinable:  # one may have fetched everything before this was known
            self._on_joinable(self)

    def check_leader_epoch(self, known_epoch: LeaderEpoch) -> None:
        """Refuses a client that lives in another epoch; `NO_EPOCH` means that it does not say."""
        if known_epoch == NO_EPOCH or known_epoch == self.leader_epoch:
            return
        if known_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {known_epoch}, but {self.leader_epoch} is current")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {known_epoch} is not known here yet")

    def refuse_appends(self, reason: BarnabasError) -> None:
        """Records can be read, and none appended, for as long as this leadership lasts."""
        self._refusal = reason

    def close(self, reason: BarnabasError | None = None) -> None:
        """The leadership has ended: staged batches are taken back, and all waiting callers get the reason.

        The default is NOT_LEADER_OR_FOLLOWER.
        """
        if self.is_closed:
            return
        if reason is None:
            reason = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is no longer led by this broker")
        self.is_closed = True
        self._refusal = reason
        self._log.discard_staged()
        if self._timer is not None:
            self._timer.cancel()
        self._waiters.fail_all(reason)
        for _, waiter in self._start_waiters:
            if not waiter.done():
                waiter.set_exception(reason)
        for watcher in (*self.watchers, *self.replica_watchers, *self.end_watchers):
            watcher(self)

    # -- facts ---------------------------------------------------------------------------------------------------

    log_start_offset: Offset = property(attrgetter("_log.log_start_offset"))  # type: ignore[assignment]
    high_watermark: Offset = property(attrgetter("_log.high_watermark"))  # type: ignore[assignment]
    """Without a function of ours around them: every produce and fetch asks."""

    @property
    def state(self) -> CommittedState:
        """The partition's state that this leadership was last told."""
        assert self._followers is not None, "it leads"
        return self._followers.state

    @property
    def last_stable_offset(self) -> Offset:
        return self._log.last_stable_offset

    @property
    def end_offset(self) -> Offset:
        """One past the last written record, committed or not."""
        return self._log.end_offset

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that the log takes."""
        config = self._log.config
        return min(config.max_message_bytes, config.segment_bytes)

    @property
    def is_compacted_only(self) -> bool:
        config = self._log.config
        return config.is_compacted and not config.is_deleted

    def is_over(self, log: Log) -> bool:
        """Whether this is the log."""
        return self._log is log

    def producers(self) -> tuple[ProducerState, ...]:
        """Who writes here, as far as it is remembered."""
        return tuple(self._log.producers)

    # -- appending -----------------------------------------------------------------------------------------------

    def check_in_sync(self) -> None:
        """Refuses acks=all while too few replicas are in sync."""
        if not self._has_enough:
            raise self._too_few(ErrorCode.NOT_ENOUGH_REPLICAS)

    def _too_few(self, code: ErrorCode) -> KafkaError:
        state = self.state
        return KafkaError(code, f"replicas in sync: {len(state.isr)}, but min.insync.replicas is {state.minimum}")

    def check(self, batch: Buffer) -> BatchCheck:
        """What must be done with a client's batch before `append_checked` takes it; it may take long."""
        if self._refusal is not None:
            raise self._refusal
        return self._log.check(batch)

    def append_usual(self, batch: Buffer, acks: int) -> Appended | None:
        """Stages a client's batch if it is one of those that clients send most, and nothing is in its way.

        Others are left to `check_in_sync` and `Admission`, which also say what is wrong.
        """
        if self._refusal is not None:
            raise self._refusal
        if self.is_admitting or (acks == ALL_ACKS and not self._has_enough):
            return None
        try:
            log = self._log
            appended = log.appending.usual(batch, self.leader_epoch, log.config)
        except DiskFailed as failure:
            self._fail(failure)
            raise
        if not self._is_staged and appended is not None:
            self._is_staged = True
            self._tick.add(self)
        return appended

    def append_checked(self, batch: AcceptedBatch) -> Appended:
        """Stages a client's batch that `Admission` has had checked."""
        if self._refusal is not None:
            raise self._refusal
        try:
            appended = self._log.append_accepted([batch], self.leader_epoch)
        except DiskFailed as failure:
            self._fail(failure)
            raise
        self._stage()
        return appended

    def append(self, records: Buffer, origin: Origin = Origin.CLIENT) -> Appended:
        """Stages a batch, however long that takes."""
        if self._refusal is not None:
            raise self._refusal
        try:
            appended = self._log.append(records, self.leader_epoch, origin)
        except DiskFailed as failure:
            self._fail(failure)
            raise
        self._stage()
        return appended

    def _stage(self) -> None:
        if not self._is_staged:
            self._is_staged = True
            self._tick.add(self)

    # -- writing and committing ----------------------------------------------------------------------------------

    def when_committed(self, last_offset: Offset, acks: int, deadline: float, callback: WhenCommitted) -> None:
        """Has `callback` called once, when the record is in the log as `acks` asks for it, or with the reason why not.

        acks 0 and 1: the leader has it, synced where the topic asks for it. acks -1: so has every in-sync replica.
        `deadline` is a time of `Clock.monotonic`, after which it is REQUEST_TIMED_OUT. `DiskFailed` says that the
        record is not in the log; NOT_LEADER_OR_FOLLOWER that the leadership has ended. Called at once if already so.
        """
        is_written = last_offset < self._own_end
        if is_written and (acks != ALL_ACKS or last_offset < self._log.high_watermark):
            callback(None)
        elif self.is_closed:
            callback(self._refusal)
        else:
            waiter = (last_offset, acks, deadline, callback)
            if not is_written:
                self._waiters.unwritten.append(waiter)
            elif self._has_enough:
                self._waiters.wait_for_commit(waiter)
            else:
                callback(self._too_few(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
                return
            if deadline < self._deadline:
                self._deadline = deadline
            if not self._is_staged:
                self._set_timer()

    def write(self, now_ms: SteadyMs) -> None:
        """For the tick: writes what is staged, and tells those who need no more."""
        self._is_staged = False
        if self.is_closed:
            return
        log = self._log
        try:
            log.write()
        except DiskFailed as failure:
            self._fail(failure)
            return
        if self._is_flush_awaited or log.must_flush(now_ms):
            self._settle(now_ms)
        else:
            self._reach(log.end_offset, now_ms)
        if self.replica_watchers:
            for watcher in tuple(self.replica_watchers):
                watcher(self)
        log.forget_written()

    def _fail(self, failure: DiskFailed) -> None:
        """The log has failed to write, or to roll in the middle of a tick: everything staged is decided by its offset.

        What a roll has written before the failure is in the log, and waits for no more than it would have.
        """
        log = self._log
        with suppress(DiskFailed):  # which it says to those who staged before an append failed
            log.write()
        self._waiters.fail_from(log.end_offset, failure)
        self._settle(self._tick.steady_ms())
        log.forget_written()
        self._on_failure(self, failure)

    def _report(self, failure: DiskFailed) -> None:
        self._on_failure(self, failure)

    def _settle(self, now_ms: SteadyMs) -> None:
        """What is written counts now, or when it is synced."""
        log = self._log
        if log.must_flush(now_ms) or (self._is_flush_awaited and log.is_flushing):
            self._is_flush_awaited = True
            self._flush(self.name)
            if self._waiters.unwritten:
                self._set_timer()
        else:
            self._is_flush_awaited = False
            self._reach(log.end_offset, now_ms)

    def flushed(self, failure: DiskFailed | None) -> None:
        """A flush of the log has ended, no matter what started it."""
        if self.is_closed or not self._is_flush_awaited:
            return
        if failure is None:
            log, now_ms = self._log, self._tick.steady_ms()
            self._reach(max(self._own_end, min(log.recovery_point, log.end_offset)), now_ms)
            self._settle(now_ms)
        else:
            self._is_flush_awaited = False
            self._waiters.fail_unwritten(failure)
        self._tick.told()

    def _reach(self, end_offset: Offset, now_ms: SteadyMs) -> None:
        """The leader has everything below `end_offset` as the topic asks for it."""
        self._own_end = end_offset
        if self._follows_own_end:
            self.commit(end_offset)
        elif self._followers is not None and self._followers.written(end_offset, now_ms):
            self.commit(self._followers.high_watermark)
        waiters, high_watermark = self._waiters, self._log.high_watermark
        waiting, waiters.unwritten = waiters.unwritten, []
        for waiter in waiting:
            last_offset, acks, _, callback = waiter
            if last_offset >= end_offset:
                waiters.unwritten.append(waiter)
            elif acks != ALL_ACKS or last_offset < high_watermark:
                callback(None)
            elif self._has_enough:
                waiters.wait_for_commit(waiter)
            else:
                callback(self._too_few(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        if self.is_closed:  # by one of those who were called
            assert self._refusal is not None
            waiters.fail_all(self._refusal)
        elif waiters.unwritten or waiters.uncommitted:
            self._set_timer()
        else:
            self._deadline = FOREVER

    def commit(self, offset: Offset) -> None:
        """Everything below `offset` is on every in-sync replica."""
        log = self._log
        if log.high_watermark < offset:
            log.advance_high_watermark(offset)
            for watcher in tuple(self.watchers):
                watcher(self)
            if self._waiters.uncommitted:
                self._waiters.committed(offset)

    def _set_timer(self) -> None:
        """One for all waiting callers; it may fire for none, because those it was set for are done."""
        if self._deadline < self._timer_deadline and not self.is_closed:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_deadline = self._deadline
            self._timer = self._tick.call_at(self._deadline, self._time_is_over)

    def _time_is_over(self) -> None:
        self._timer, self._timer_deadline = None, FOREVER
        message = f"{self.name}: not every in-sync replica got the record in time"
        self._waiters.expire(self._tick.monotonic(), KafkaError(ErrorCode.REQUEST_TIMED_OUT, message))
        self._deadline = self._waiters.first_deadline
        self._set_timer()
        self._tick.told()

    # -- followers -----------------------------------------------------------------------------------------------

    @property
    def has_followers(self) -> bool:
        """Whether there are other replicas."""
        return self._followers is not None and bool(self._followers.followers)

    def lags(self, now_ms: SteadyMs) -> list[FollowerLag]:
        """How far each follower is behind."""
        followers = self._followers
        if followers is None:
            return []
        followers.written(self._own_end, now_ms)
        return followers.lag_of_each(now_ms)

    def check_follower(self, broker_id: int) -> None:
        """Refuses a broker that has no replica, as far as is known here."""
        if self._followers is None or broker_id not in self._followers.followers:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {broker_id} is not known as a follower here")

    def fetched_by(self, fetch: Fetched) -> None:
        """A follower has proved what it has: more may be committed, and it may be in sync."""
        followers = self._followers
        assert followers is not None, "it leads"
        followers.written(self._own_end, fetch.now_ms)
        if followers.fetched(fetch):
            self.commit(followers.high_watermark)
            self._tick.told()
        self._tell_starts()
        if not followers.has_proposal and followers.may_join(fetch.broker_id):
            self._on_joinable(self)

    @property
    def has_joinable(self) -> bool:
        """Whether a follower could be proposed now that is not in sync."""
        return self._followers is not None and self._followers.has_joinable

    def due_proposal(self, now_ms: SteadyMs, lag_ms_max: int, is_over: Callable[[int, int], bool]) -> Proposal | None:
        """The ISR that the controller should be asked for now, if it is another one than there is."""
        followers = self._followers
        if followers is None or self.is_closed:
            return None
        followers.written(self._own_end, now_ms)
        proposal = followers.due_proposal(now_ms, lag_ms_max, is_over)
        if proposal is not None:
            self._look_who_is_in_sync()  # those whom it adds count from now on
        return proposal

    def has_sent(self, proposal: Proposal) -> bool:
        """Whether the proposal is on its way, for all that is known."""
        return not self.is_closed and self._followers is not None and self._followers.is_sent(proposal)

    def sends_again(self, proposal: Proposal) -> None:
        """Another copy goes to the controller."""
        if self._followers is not None:
            self._followers.sent_again(proposal)

    def refused(self, proposal: Proposal) -> None:
        """The controller has looked at it, and has not written it."""
        if self._followers is not None and not self.is_closed:
            self._followers.refused(proposal)
            self._look_who_is_in_sync()

    @property
    def is_settled(self) -> bool:
        """Whether the watermark is one of this leadership: before, an earlier leader may have shown more."""
        return self._followers is not None and self._log.high_watermark >= self._followers.start_offset

    # -- deleting ------------------------------------------------------------------------------------------------

    def delete_records_before(self, offset: Offset) -> Offset:
        """Moves the start of the log to `offset` (-1: to the high watermark); returns where it starts now."""
        before = self._log.log_start_offset
        self._log.delete_records_before(self._log.high_watermark if offset == -1 else offset)
        if self._log.log_start_offset > before:
            for watcher in tuple(self.replica_watchers):
                watcher(self)
        return self._log.log_start_offset

    async def wait_for_start(self, offset: Offset) -> None:
        """Until the log starts there or later on every in-sync replica; raises why this leadership has ended."""
        assert self._followers is not None, "it leads"
        if self.is_closed:
            assert self._refusal is not None
            raise self._refusal
        if not self._followers.is_deleted_before(offset):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._start_waiters.append((offset, waiter))
            await waiter

    def _tell_starts(self) -> None:
        if self._start_waiters and self._followers is not None:
            for offset, waiter in self._start_waiters:
                if not waiter.done() and self._followers.is_deleted_before(offset):
                    waiter.set_result(None)
            self._start_waiters = [one for one in self._start_waiters if not one[1].done()]
