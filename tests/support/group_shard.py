"""A coordinator without a broker: carries out the effects of a `GroupShardState` against a list, a clock and a dict.

```python
shard = PlayedShard()
leader, follower = shard.stable_group("g", 2)   # joined, synced, and assigned
shard.advance(10_000)                           # timers fire in their order
shard.restart()                                 # a new state from the log
```

The log is `log`; `holds_appends` keeps appended records uncommitted until `commit_appended`. Every token is answered
exactly once: a second answer fails.
"""

from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Any

from barnabas.base.clock import Moment
from barnabas.base.uuid import ZERO_UUID
from barnabas.groups.effects import Effects, Reply, SetTimer, StoryEvent, TimerKey
from barnabas.groups.protocols import Protocols
from barnabas.groups.replay import Replay
from barnabas.groups.requests import (
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from barnabas.groups.settings import GroupSettings
from barnabas.groups.state import GroupShardState
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode
from barnabas.wire.primitives import INT16, INT32, nullable_string

START_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
NO_DELAY = GroupSettings(initial_rebalance_delay_ms=0)


def subscription(*topics: str) -> bytes:
    """A consumer's metadata, version 0."""
    named = b"".join(nullable_string(topic, False) for topic in topics)
    return INT16.pack(0) + INT32.pack(len(topics)) + named + INT32.pack(-1)


RANGE: Protocols = (("range", subscription("orders")),)


class PlayedShard:
    def __init__(self, settings: GroupSettings = NO_DELAY) -> None:
        self.settings = settings
        self.now_ms = START_MS
        """Time that passes."""
        self.ahead_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.replies: dict[int, Any] = {}
        self.timers: dict[TimerKey, int] = {}
        self.events: list[StoryEvent] = []
        self.sync_requests: dict[int, SyncRequest] = {}
        self.appended: deque[Effects] = deque()
        self.holds_appends = False
        self._uuids = count(1)
        self._tokens = count(1)
        self.state = self._new_state()

    def _new_state(self) -> GroupShardState:
        return GroupShardState(self.settings, lambda: f"uuid{next(self._uuids)}")

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms + self.ahead_ms, self.now_ms)

    def set_ahead(self, milliseconds: int) -> None:
        """Somebody sets the wall clock."""
        self.ahead_ms += milliseconds

    # --- carrying out ---------------------------------------------------------------------------------------

    def carry_out(self, effects: Effects) -> None:
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                assert timer.delay_ms >= 0
                self.timers[timer.key] = self.now_ms + timer.delay_ms
            else:
                self.timers.pop(timer.key, None)
        self.events += effects.events
        if not effects.records:
            self.answer(effects.replies)
            return
        self.appended.append(effects)
        if not self.holds_appends:
            self.commit_appended()

    def commit_appended(self, at_most: int | None = None) -> None:
        while self.appended and at_most != 0:
            effects = self.appended.popleft()
            self.log += [(record.key, record.value) for record in effects.records]
            following = self.state.committed(effects, self.now)
            self.answer(effects.replies)
            if following is not None:
                self.carry_out(following)
            at_most = None if at_most is None else at_most - 1

    def refuse_appended(self, error: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> None:
        """The oldest append wrote nothing."""
        effects = self.appended.popleft()
        self.answer([Reply(reply.token, error) for reply in effects.replies])
        self.carry_out(self.state.refused(effects, error, self.now))

    def answer(self, replies: Sequence[Reply]) -> None:
        for token, result in replies:
            assert isinstance(token, int)
            assert token not in self.replies, f"token {token} was answered already: {self.replies[token]}"
            self.replies[token] = result

    def advance(self, milliseconds: int) -> None:
        """Lets time pass, and every timer fire that is due."""
        end_ms = self.now_ms + milliseconds
        while self.timers:
            key, at_ms = min(self.timers.items(), key=lambda item: (item[1], item[0]))
            if at_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, at_ms)
            del self.timers[key]
            self.carry_out(self.state.timer_fired(key, self.now))
        self.now_ms = end_ms

    def restart(self, surviving: int = 0) -> None:
        """A new state from the log, with the first few of the appends that nobody knows the end of."""
        for effects in list(self.appended)[:surviving]:
            self.log += [(record.key, record.value) for record in effects.records]
        for effects in self.appended:
            self.answer([Reply(reply.token, ErrorCode.NOT_COORDINATOR) for reply in effects.replies])
        self.answer([Reply(token, ErrorCode.NOT_COORDINATOR) for token in self.state.abandon()])
        self.appended.clear()
        self.timers.clear()
        self.state = self.replayed()
        self.carry_out(self.state.revive(self.state.groups.group_ids(), self.now))

    def replayed(self) -> GroupShardState:
        """What the log makes of a new state."""
        state, replay = self._new_state(), Replay()
        replay.add_all([key for key, _ in self.log], [value for _, value in self.log])
        while not replay.build_into(state.groups, limit=3):
            pass
        return state

    # --- requests -------------------------------------------------------------------------------------------

    def new_token(self) -> int:
        return next(self._tokens)

    def send_join(
        self,
        group_id: str,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        client_id: str = "client",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        known_id: bool = True,
        skips: bool = True,
        reason: str = "",
    ) -> int:
        """A token: the answer may come later."""
        token = self.new_token()
        request = JoinRequest(
            group_id,
            member_id,
            instance_id,
            client_id,
            "/127.0.0.1",
            session_ms,
            rebalance_ms,
            protocol_type,
            protocols,
            known_id,
            skips,
            reason,
        )
        self.carry_out(self.state.join(request, token, self.now))
        return token

    def joined(self, token: int) -> JoinResult:
        result = self.replies[token]
        assert isinstance(result, JoinResult), result
        return result

    def new_member(self, group_id: str, **options: Any) -> tuple[str, int]:
        """The first step's id, and the token of the second step of a dynamic member's join."""
        first = self.joined(self.send_join(group_id, **options))
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.send_join(group_id, first.member_id, **options)

    def send_sync(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
    ) -> int:
        token = self.new_token()
        request = SyncRequest(
            group_id, generation, member_id, instance_id, protocol_type, protocol, tuple((assignments or {}).items())
        )
        self.sync_requests[token] = request
        self.carry_out(self.state.sync(request, token, self.now))
        return token

    def synced(self, token: int) -> SyncResult:
        result = self.replies[token]
        assert isinstance(result, SyncResult), result
        return result

    def heartbeat(self, group_id: str, generation: int, member_id: str, instance_id: str | None = None) -> ErrorCode:
        return self.state.heartbeat(group_id, generation, member_id, instance_id, self.now_ms)

    def leave(self, group_id: str, *members: LeavingMember) -> list[ErrorCode]:
        token = self.new_token()
        self.carry_out(self.state.leave(group_id, members, token, self.now))
        result = self.replies[token]
        assert isinstance(result, LeaveResult)
        assert result.error is ErrorCode.NONE
        return [member.error for member in result.members]

    def send_commit(
        self,
        group_id: str,
        offsets: dict[tuple[str, int], int],
        *,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        metadata: str | None = "",
        retention_ms: int | None = None,
    ) -> int:
        token = self.new_token()
        wanted = [
            OffsetToCommit(topic, ZERO_UUID, partition, offset, 0, metadata)
            for (topic, partition), offset in offsets.items()
        ]
        self.carry_out(
            self.state.commit_offsets(
                group_id, generation, member_id, instance_id, wanted, token, self.now, retention_ms
            )
        )
        return token

    def commit(self, group_id: str, offsets: dict[tuple[str, int], int], **options: Any) -> list[ErrorCode]:
        errors = self.replies[self.send_commit(group_id, offsets, **options)]
        assert isinstance(errors, list)
        return errors

    def offset(self, group_id: str, topic: str, partition: int) -> int | None:
        (value,) = self.state.fetch_offsets(group_id, topic, [partition])
        return value.offset if value is not None else None

    def expire(self, group_id: str) -> None:
        for effects in self.state.expire_offsets(group_id, self.now):
            self.carry_out(effects)

    def delete_group(self, group_id: str) -> ErrorCode:
        token = self.new_token()
        self.carry_out(self.state.delete_group(group_id, token))
        error: ErrorCode = self.replies[token]
        return error

    # --- whole stories --------------------------------------------------------------------------------------

    def stable_group(self, group_id: str, members: int, **options: Any) -> list[str]:
        """A new group in generation 1; each member is assigned its own id. The first one leads."""
        member_ids = [self.joined(self.send_join(group_id, **options)).member_id for _ in range(members)]
        tokens = [self.send_join(group_id, member_id, **options) for member_id in member_ids]
        self.finish_initial_delay()
        assert [self.joined(token).generation for token in tokens] == [1] * members
        self.sync_all(group_id, 1, member_ids)
        return member_ids

    def state_of(self, group_id: str) -> GroupState:
        """Dead is what nobody knows of."""
        description = self.state.describe(group_id)
        return description.state if description is not None else GroupState.DEAD

    def finish_initial_delay(self) -> None:
        """The delay, and once more for members that joined meanwhile."""
        self.advance(2 * self.settings.initial_rebalance_delay_ms)

    def sync_all(self, group_id: str, generation: int, member_ids: Sequence[str]) -> None:
        """All ask for their assignment; whoever leads hands it in."""
        assignments = {member_id: member_id.encode() for member_id in member_ids}
        tokens = {member_id: self.send_sync(group_id, generation, member_id, assignments) for member_id in member_ids}
        for member_id, token in tokens.items():
            result = self.synced(token)
            assert (result.error, result.assignment) == (ErrorCode.NONE, member_id.encode())
