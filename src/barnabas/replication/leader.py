"""What a leader knows of its followers, and what follows from it: how far the log is committed, who is in sync. Pure.

Events come as method calls; each says whether the high watermark has moved. Nothing is read or written, no clock is
asked: the owner brings the time, sends proposals to the controller, and tells what became of them.

```
own end ──┐                                            ┌──▶ high_watermark
fetches ──┼──▶ LeaderState ── due_proposal(now) ──▶ AlterPartition ──▶ controller
states  ──┘         ▲                                                      │
                    └────────── answered, refused, or a newer state ◀──────┘
```

Committed is what every member of the *maximal* ISR has: those of the last state that the controller wrote, and those
that were proposed, because that may be written by now. So an expansion counts from the moment it is sent, and a shrink
when it is confirmed. The high watermark rests while the *committed* ISR has fewer members than the minimum: a replica
that was only proposed cannot be elected.

A proposal is forgotten in three ways: a state with a higher partition epoch came; the leadership ended; or the
controller refused the only copy of it. When it was sent more than once, a copy may be under way however it was
answered. Then the leader proposes the ISR as it is: that raises the partition epoch, and no copy can pass any more.

A follower may be proposed when what it has proved reaches the high watermark and the end that the log had when this
leader epoch began: a record below that may have been acknowledged by the leader before. Only a fetch in this leader
epoch that does not diverge proves anything.

These are rules 7 to 9 of the cluster's design; `tests/model` searches for histories that break them.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from barnabas.base.ids import LeaderEpoch, Offset, SteadyMs

UNKNOWN_END: Final = -1
UNKNOWN_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class CommittedState:
    """What the controller has written of the partition, as far as its leader knows."""

    partition_epoch: int
    isr: Mapping[int, int]
    """The broker epoch in which each member is in sync."""
    minimum: int
    """`min.insync.replicas` as the state has it, and at most the number of replicas."""
    replicas: tuple[int, ...]
    offline: Mapping[int, int] = field(default_factory=dict)
    """Replicas whose log directories have failed, with the broker epochs in which they did."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A leadership, or a newer state of it, as the image has it."""

    leader: int
    leader_epoch: LeaderEpoch
    isr: Mapping[int, int]
    replicas: tuple[int, ...]
    partition_epoch: int = 0
    broker_epoch: int = UNKNOWN_EPOCH
    """Of the registration that it is granted to."""
    minimum: int | None = None
    """None in a state of old, which does not say: the topic's own setting is meant."""
    offline: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """An ISR that the leader asks for, of the state with this partition epoch."""

    partition_epoch: int
    isr: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A follower's fetch of this leader epoch that does not diverge: it has everything below `end_offset`."""

    broker_id: int
    broker_epoch: int
    end_offset: Offset
    log_start_offset: Offset
    now_ms: SteadyMs


@dataclass(slots=True)
class Follower:
    end_offset: Offset = UNKNOWN_END
    """What it has proved in this leader epoch."""
    broker_epoch: int = UNKNOWN_EPOCH
    log_start_offset: Offset = UNKNOWN_END
    caught_up_ms: SteadyMs = 0
    """When it last had all that the leader had then."""
    fetched_ms: SteadyMs = 0
    leader_end_offset: Offset = UNKNOWN_END
    """Of its last fetch."""

    def fetched(self, fetch: Fetched, leader_end_offset: Offset) -> None:
        if fetch.end_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, fetch.now_ms)
        elif self.leader_end_offset != UNKNOWN_END and fetch.end_offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = fetch.end_offset
        self.broker_epoch = fetch.broker_epoch
        self.log_start_offset = fetch.log_start_offset
        self.fetched_ms = fetch.now_ms
        self.leader_end_offset = leader_end_offset


class FollowerLag(NamedTuple):
    """How far a follower is behind."""

    broker_id: int
    records: int
    seconds: float


@dataclass(slots=True)
class _Sent:
    """A proposal on its way."""

    proposal: Proposal
    copies: int = 1


@dataclass(slots=True)
class LeaderState:
    """Of one leadership. Owner: the partition, which is told every event in order."""

    broker_id: int
    broker_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    """Where the log ended when this leader epoch began."""
    high_watermark: Offset
    state: CommittedState
    now_ms: SteadyMs
    """When it began."""
    own_end: Offset = field(init=False)
    followers: dict[int, Follower] = field(init=False)
    _sent: _Sent | None = field(init=False, default=None)
    _doubtful: frozenset[int] = field(init=False, default=frozenset())
    """Members of proposals that were refused, and may still be written."""

    def __post_init__(self) -> None:
        self.own_end = self.start_offset
        self.followers = {one: Follower(caught_up_ms=self.now_ms) for one in self._others(self.state)}

    def _others(self, state: CommittedState) -> list[int]:
        return [one for one in state.replicas if one != self.broker_id]

    # -- facts ---------------------------------------------------------------------------------------------------

    @property
    def maximal_isr(self) -> frozenset[int]:
        """All replicas that the controller may have recorded as in sync."""
        proposed = frozenset(self._sent.proposal.isr) if self._sent is not None else frozenset()
        return self._doubtful.union(self.state.isr, proposed)

    @property
    def is_settled(self) -> bool:
        """Whether the watermark is one of this leadership: before, an earlier leader may have shown more."""
        return self.high_watermark >= self.start_offset

    @property
    def has_enough(self) -> bool:
        """Whether acks=all may be asked for."""
        return len(self.state.isr) >= self.state.minimum

    @property
    def is_alone(self) -> bool:
        """Whether what the leader has is committed by that."""
        return self.has_enough and self.maximal_isr == {self.broker_id}

    def is_deleted_before(self, offset: Offset) -> bool:
        """Whether every follower that is in sync has deleted what is before this offset."""
        others = [self.followers[one] for one in self.state.isr if one != self.broker_id]
        return all(one.log_start_offset >= offset for one in others)

    @property
    def has_proposal(self) -> bool:
        """Whether one is on its way: there is no other before it is answered."""
        return self._sent is not None

    @property
    def has_joinable(self) -> bool:
        """Whether a follower could be proposed now that is not in sync."""
        return not self.has_proposal and any(map(self.may_join, self.followers))

    # -- events --------------------------------------------------------------------------------------------------

    def written(self, end_offset: Offset, now_ms: SteadyMs) -> bool:
        """The leader has everything below `end_offset` as the topic asks for it.

        A follower that had everything until now has time to get this from now on, however long nothing came.
        """
        if end_offset > self.own_end:
            for follower in self.followers.values():
                if follower.end_offset >= self.own_end:
                    follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        self.own_end = end_offset
        return self._advance()

    def fetched(self, fetch: Fetched) -> bool:
        """Of a registration that is not older than the one that has fetched before."""
        follower = self.followers.get(fetch.broker_id)
        if follower is None or fetch.broker_epoch < follower.broker_epoch:
            return False
        follower.fetched(fetch, self.own_end)
        return self._advance()

    def is_proposed(self, isr: Collection[int]) -> bool:
        """Whether these are the members that this leader has asked for."""
        return self._sent is not None and self._sent.proposal.isr.keys() == set(isr)

    def told(self, state: CommittedState) -> bool:
        """What the controller has written; older news are dropped.

        Replicas are added without a new state: what was proposed is as it was.
        """
        if state.partition_epoch < self.state.partition_epoch:
            return False
        if state.partition_epoch > self.state.partition_epoch:
            self._sent = None
            self._doubtful = frozenset()
        elif state.replicas == self.state.replicas:
            return False
        self.state = state
        others = self._others(state)
        self.followers = {one: self.followers.get(one) or Follower(caught_up_ms=self.now_ms) for one in others}
        return self._advance()

    def set_minimum(self, minimum: int) -> bool:
        """The minimum of a state that does not say it."""
        self.state = replace(self.state, minimum=min(minimum, len(self.state.replicas)))
        return self._advance()

    # -- who is in sync ------------------------------------------------------------------------------------------

    def may_join(self, broker_id: int) -> bool:
        """Whether a follower that is not in sync has proved enough to be proposed."""
        follower = self.followers.get(broker_id)
        return (
            follower is not None
            and broker_id not in self.state.isr
            and follower.broker_epoch > self.state.offline.get(broker_id, UNKNOWN_EPOCH)
            and follower.end_offset >= max(self.high_watermark, self.start_offset)
        )

    def lags(self, broker_id: int, now_ms: SteadyMs, lag_ms_max: int) -> bool:
        """Whether a follower has not had everything for too long."""
        follower = self.followers[broker_id]
        return follower.end_offset < self.own_end and now_ms - follower.caught_up_ms > lag_ms_max

    def lag_of_each(self, now_ms: SteadyMs) -> list[FollowerLag]:
        """One that has proved nothing in this epoch is behind by the whole log."""
        lags = []
        for broker_id, follower in self.followers.items():
            records = self.own_end - max(0, follower.end_offset)
            lags.append(
                FollowerLag(broker_id, records, (now_ms - follower.caught_up_ms) / 1000 if records > 0 else 0.0)
            )
        return lags

    def due_proposal(
        self, now_ms: SteadyMs, lag_ms_max: int, is_over: Callable[[int, int], bool] = lambda broker_id, epoch: False
    ) -> Proposal | None:
        """Another ISR than there is, if there should be one: to be sent now. One at a time.

        `is_over` says of a broker and its epoch that this registration is known to have ended: nobody is proposed in
        vain, because that would be refused, and those with it who could join.
        """
        if self._sent is not None:
            return None
        isr = {
            one: epoch
            for one, epoch in self.state.isr.items()
            if one == self.broker_id or (one in self.followers and not self.lags(one, now_ms, lag_ms_max))
        }
        joining = [
            one
            for one, follower in self.followers.items()
            if self.may_join(one) and not self.lags(one, now_ms, lag_ms_max) and not is_over(one, follower.broker_epoch)
        ]
        isr.update((one, self.followers[one].broker_epoch) for one in joining if one not in self._doubtful)
        if isr == self.state.isr and not self._doubtful:
            return None
        return self.propose(isr)

    def propose(self, isr: Mapping[int, int]) -> Proposal:
        """From now on those whom it adds count."""
        assert self._sent is None, "one at a time"
        assert self.broker_id in isr, "a leader is in sync"
        self._sent = _Sent(Proposal(self.state.partition_epoch, dict(isr)))
        return self._sent.proposal

    def is_sent(self, proposal: Proposal) -> bool:
        """Whether it is the one on its way."""
        return self._sent is not None and self._sent.proposal is proposal

    def sent_again(self, proposal: Proposal) -> None:
        """Nobody knows what became of the copy before."""
        if self._sent is not None and self._sent.proposal == proposal:
            self._sent.copies += 1

    def refused(self, proposal: Proposal) -> bool:
        """The controller has looked at it, and has not written it."""
        sent = self._sent
        if sent is None or sent.proposal != proposal:
            return False
        self._sent = None
        if sent.copies > 1:
            self._doubtful = self._doubtful.union(proposal.isr) - frozenset(self.state.isr)
        return self._advance()

    # -- what is committed ---------------------------------------------------------------------------------------

    def _advance(self) -> bool:
        if not self.has_enough:
            return False
        committed = self.own_end
        for one in self.maximal_isr:
            if one == self.broker_id:
                continue
            follower = self.followers.get(one)
            committed = min(committed, UNKNOWN_END if follower is None else follower.end_offset)
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def check_invariants(self) -> None:
        assert self.high_watermark <= max(self.own_end, self.start_offset)
        assert self.broker_id in self.state.isr, "a leader is in sync"
        assert self.state.isr.keys() <= set(self.state.replicas)
        assert self.broker_id not in self.followers
        if self._sent is not None:
            assert self._sent.proposal.partition_epoch == self.state.partition_epoch
            assert self._sent.copies >= 1
        assert self._doubtful.isdisjoint(self.state.isr)
        assert self.maximal_isr >= self.state.isr.keys()
