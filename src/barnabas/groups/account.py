"""What is noted of a rebalance while it runs, for the event that tells all of it when it ends.

Pure. One `RebalanceAccount` belongs to one rebalance of one group, from the moment that its members must join again to
the moment that they have their assignment, that nobody is left, or that the next rebalance begins. It is bounded: of
many members and causes the first few are kept and the rest is counted. Its moments are as far apart as they were, even
when the wall clock is set meanwhile.
"""

from barnabas.base.clock import Moment
from barnabas.groups.effects import CAUSES_MAX, MEMBERS_MAX, Cause, MemberRef, Outcome, RebalanceCompleted


class RebalanceAccount:
    __slots__ = (
        "_causes",
        "_causes_left_out",
        "_generation_before",
        "_group_id",
        "_join_ended_at_ms",
        "_joined",
        "_last_joined",
        "_last_synced",
        "_left",
        "_members_before",
        "_started",
    )

    def __init__(self, group_id: str, started: Moment, generation: int, members_before: int) -> None:
        self._group_id = group_id
        self._started = started
        self._generation_before = generation
        self._members_before = members_before
        self._causes: list[Cause] = []
        self._causes_left_out = 0
        self._joined: list[MemberRef] = []
        self._left: list[MemberRef] = []
        self._last_joined: MemberRef | None = None
        self._last_synced: MemberRef | None = None
        self._join_ended_at_ms: int | None = None

    def add_cause(self, cause: Cause) -> None:
        if len(self._causes) < CAUSES_MAX:
            self._causes.append(cause)
        else:
            self._causes_left_out += 1

    def member_added(self, member: MemberRef) -> None:
        if len(self._joined) < MEMBERS_MAX:
            self._joined.append(member)

    def member_removed(self, member: MemberRef) -> None:
        if len(self._left) < MEMBERS_MAX:
            self._left.append(member)

    def join_received(self, member: MemberRef) -> None:
        self._last_joined = member

    def sync_received(self, member: MemberRef) -> None:
        self._last_synced = member

    @property
    def last_joined(self) -> MemberRef | None:
        return self._last_joined

    def join_ended(self, now: Moment) -> None:
        self._join_ended_at_ms = self._wall_ms(now)

    def _wall_ms(self, now: Moment) -> int:
        return self._started.wall_ms + now.steady_ms - self._started.steady_ms

    def ended(
        self,
        outcome: Outcome,
        now: Moment,
        generation: int,
        members_after: int,
        leader: MemberRef | None,
        protocol: str | None,
    ) -> RebalanceCompleted:
        return RebalanceCompleted(
            group_id=self._group_id,
            started_at_ms=self._started.wall_ms,
            join_ended_at_ms=self._join_ended_at_ms,
            completed_at_ms=self._wall_ms(now),
            outcome=outcome,
            generation_before=self._generation_before,
            generation_after=generation,
            causes=tuple(self._causes),
            causes_left_out=self._causes_left_out,
            members_before=self._members_before,
            members_after=members_after,
            joined=tuple(self._joined),
            left=tuple(self._left),
            last_joined=self._last_joined,
            last_synced=self._last_synced,
            leader=leader,
            protocol=protocol,
        )
