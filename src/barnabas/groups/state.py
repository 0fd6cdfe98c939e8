"""All groups of one partition of `__consumer_offsets`: the calls that a coordinator makes for its clients.

Pure: no I/O, no clock, no randomness. One `GroupShardState` belongs to one partition for as long as this broker leads
it; one task owns it. A call changes soft state at once and returns `effects.Effects`. Their records take
effect when they are committed, in `groups` (`logged.LoggedGroups`). They end in one of three ways:

| what is known | call |
|---|---|
| they are below the high watermark | `committed`; returns what follows |
| they were certainly not written | `refused`; the state goes on |
| nothing, or the leadership is lost | `abandon`; all tokens are answered, the state is dropped and reloaded |

After the last replayed record, `revive` brings every group to life, in as many slices as the caller likes.

`now` has both clocks: sessions go by the steady one, what is written and told by the wall clock. A heartbeat needs the
first alone; for the expiry of offsets the wall clock's time is a settled one (`barnabas.base.clock`).

Not here: authorization, empty group ids, whether topics exist; the handlers do that.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from uuid import UUID

from barnabas.base.clock import Moment
from barnabas.base.ids import SteadyMs
from barnabas.base.uuid import ZERO_UUID
from barnabas.groups import join as joining
from barnabas.groups import leave as leaving
from barnabas.groups import offsets as offset_rules
from barnabas.groups import sync as syncing
from barnabas.groups.effects import AssignmentWritten, Effects, Reason, Reply, TimerKey, TimerKind, Token
from barnabas.groups.logged import LoggedGroups
from barnabas.groups.rebalance import Step, complete_join, initial_delay_over, keep_alive, prepare, session_timer_fired
from barnabas.groups.records import CommittedOffset, GroupMetadata, offset_in
from barnabas.groups.requests import (
    CLASSIC_GROUP_TYPE,
    UNKNOWN_MEMBER_ID,
    GroupDescription,
    GroupListing,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    LeftMember,
    MemberDescription,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from barnabas.groups.settings import GroupSettings
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.primitives import TEXT_BYTES_MAX

_LAST_MOMENT_MS = 2**63 - 1
_NONE = ErrorCode.NONE
_UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
_REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
_PREPARING = GroupState.PREPARING_REBALANCE
_ANY_MOMENT = Moment(0, 0)
"""For what does not depend on the time."""


class GroupShardState:
    def __init__(self, settings: GroupSettings, new_uuid_text: Callable[[], str]) -> None:
        self.settings = settings
        self.groups = LoggedGroups()
        self._groups = self.groups.by_id
        self._new_uuid_text = new_uuid_text

    # --- the log --------------------------------------------------------------------------------------------

    def revive(self, group_ids: Iterable[str], now: Moment) -> Effects:
        """All records are replayed: members of these groups go on if they were stable, with a new session each."""
        step = Step(self.settings, now)
        for group_id in group_ids:
            group = self._groups[group_id]
            if group.durable is not None:
                group.restore()
            elif not group.offsets:
                self.groups.drop(group)
                continue
            for member in group.members.values():
                keep_alive(group, member, step)
            if len(group.members) > self.settings.group_size_max:
                prepare(group, (step.cause(Reason.OVER_CAPACITY),), step)
        return step.effects

    def committed(self, effects: Effects, now: Moment) -> Effects | None:
        """These records are below the high watermark. Gives what follows, if anything does."""
        groups = self.groups
        for record in effects.records:
            groups.apply(record.change, now.wall_ms)
        written = effects.continuation
        following = None
        if isinstance(written, AssignmentWritten):
            step = Step(self.settings, now)
            syncing.assignment_written(written, step)
            following = groups.sent(written.group, step.effects)
        groups.landed(effects)
        return following

    def refused(self, effects: Effects, error: ErrorCode, now: Moment) -> Effects:
        """These records were certainly not written. The replies of `effects` are the coordinator's to refuse."""
        written = effects.continuation
        step = Step(self.settings, now)
        concerned = effects.groups
        self.groups.landed(effects)
        for group in concerned:
            self.groups.drop_if_unused(group)  # what would have made it known is not in the log
        if written is None:
            return step.effects
        group = written.group
        if isinstance(written, AssignmentWritten):
            syncing.assignment_refused(written, error, step)
        elif group.state is GroupState.STABLE:
            prepare(group, (step.cause(Reason.WRITE_REFUSED),), step)
        return self.groups.sent(group, step.effects)

    def abandon(self) -> list[Token]:
        """The state is given up: everyone who waits for a join or a sync. (Replies with records are not here.)"""
        tokens: list[Token] = []
        for group in self._groups.values():
            tokens += group.joining.values()
            tokens += group.syncing.values()
            group.joining.clear()
            group.syncing.clear()
        return tokens

    # --- membership -----------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, token: Token, now: Moment) -> Effects:
        step = Step(self.settings, now)
        settings = self.settings
        error = joining.join_error(request, settings.session_timeout_min_ms, settings.session_timeout_max_ms)
        group = self._groups.get(request.group_id)
        if error is None and group is None and request.member_id != UNKNOWN_MEMBER_ID:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not None:
            step.reply(token, JoinResult(error, member_id=request.member_id))
            return step.effects
        is_new_group = group is None
        if group is None:
            group = self.groups.create(request.group_id, now.wall_ms)
        joining.join(group, request, token, self._new_uuid_text, step)
        if is_new_group and not step.effects.records:
            # As in Kafka, a group is there from the first join on, even from one that it refuses.
            step.write(group, GroupMetadata("", 0, None, None, now.wall_ms, ()))
        return self.groups.sent(group, step.effects)

    def sync(self, request: SyncRequest, token: Token, now: Moment) -> Effects:
        step = Step(self.settings, now)
        group = self._groups.get(request.group_id)
        if group is None:
            step.reply(token, SyncResult(_UNKNOWN_MEMBER))
            return step.effects
        syncing.sync(group, request, token, step)
        return self.groups.sent(group, step.effects)

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, steady_ms: SteadyMs
    ) -> ErrorCode:
        """Hot: the answer, and nothing but a note of the time."""
        group = self._groups.get(group_id)
        if group is None:
            return _UNKNOWN_MEMBER
        if instance_id is not None:
            error = group.member_error(member_id, instance_id)
            if error is not None:
                return error
        member = group.members.get(member_id)
        if member is None:
            return _UNKNOWN_MEMBER
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        member.last_seen_ms = steady_ms
        return _REBALANCING if group.state is _PREPARING else _NONE

    def leave(self, group_id: str, members: Sequence[LeavingMember], token: Token, now: Moment) -> Effects:
        step = Step(self.settings, now)
        group = self._groups.get(group_id)
        if group is None:
            left = [LeftMember(member.member_id, member.instance_id, _UNKNOWN_MEMBER) for member in members]
            step.reply(token, LeaveResult(_NONE, left))
            return step.effects
        left = leaving.leave(group, members, step)
        step.reply(token, LeaveResult(_NONE, left))
        return self.groups.sent(group, step.effects)

    def timer_fired(self, key: TimerKey, now: Moment) -> Effects:
        """A timer that is too late for what it was set for does nothing."""
        step = Step(self.settings, now)
        group = self._groups.get(key.group_id)
        if group is None:
            return step.effects
        if key.kind is TimerKind.SESSION:
            member = group.members.get(key.member_id)
            if member is not None:
                session_timer_fired(group, member, step)
            elif key.member_id in group.pending:
                joining.pending_timer_fired(group, key.member_id, step)
        elif key.kind is TimerKind.SYNC:
            syncing.sync_time_over(group, step)
        elif group.state is GroupState.PREPARING_REBALANCE:
            if group.is_initial_rebalance:
                initial_delay_over(group, step)
            else:
                complete_join(group, step)
        return self.groups.sent(group, step.effects)

    # --- offsets --------------------------------------------------------------------------------------------

    def commit_offsets(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        offsets: Sequence[OffsetToCommit],
        token: Token,
        now: Moment,
        retention_ms: int | None = None,
    ) -> Effects:
        """Answers with an error code for each offset; raises `KafkaError` when the whole request is refused.

        Version 9 and up gets GROUP_ID_NOT_FOUND, earlier ones ILLEGAL_GENERATION.
        """
        group = self._groups.get(group_id)
        if group is None:
            if generation >= 0:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            if len(group_id.encode()) > TEXT_BYTES_MAX:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            group = self.groups.create(group_id, now.wall_ms)
        else:
            offset_rules.check_commit(group, generation, member_id, instance_id)
            member = group.members.get(member_id)
            if member is not None:
                member.last_seen_ms = now.steady_ms  # as good as a heartbeat
        effects = Effects()
        expire_timestamp_ms = None if retention_ms is None else min(now.wall_ms + retention_ms, _LAST_MOMENT_MS)
        errors = offset_rules.commit(group, offsets, effects, self.settings, now.wall_ms, expire_timestamp_ms)
        effects.replies.append(Reply(token, errors))
        if not effects.records:
            self.groups.drop_if_unused(group)
        return self.groups.sent(group, effects)

    def fetch_offsets(
        self,
        group_id: str,
        topic: str,
        partitions: Sequence[int],
        topic_id: UUID = ZERO_UUID,
    ) -> Iterator[CommittedOffset | None]:
        """None where nothing is committed. Without transactions every committed offset is a stable one."""
        group = self._groups.get(group_id)
        if group is None:
            return repeat(None, len(partitions))
        return offset_rules.fetch(group, topic, partitions, topic_id)

    def fetch_all_offsets(
        self, group_id: str, require_stable: bool = False
    ) -> Iterator[tuple[str, Iterator[tuple[int, CommittedOffset]]]]:
        """All offsets that a group has now, by topic, decoded one by one."""
        group = self._groups.get(group_id)
        return iter(()) if group is None else offset_rules.fetch_all(group)

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]], token: Token) -> Effects:
        """Answers with an error code for each partition; raises `KafkaError` when the whole request is refused."""
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        offset_rules.check_offset_delete(group)
        effects = Effects()
        effects.replies.append(Reply(token, offset_rules.delete(group, partitions, effects)))
        return self.groups.sent(group, effects)

    def expire_offsets(self, group_id: str, now: Moment) -> Iterator[Effects]:
        """Tombstones of what has expired, and of the group when it is empty and has no offset left.

        Of very many offsets a few at a time; the state may change in between. Such a group goes at a later look.
        """
        group = self._groups.get(group_id)
        if group is None or group.in_flight:
            return
        is_small = self.offset_count(group_id) <= offset_rules.TOGETHER_MAX
        own: dict[int, Effects] = {}
        offsets = offset_rules.list_offsets(group)
        while True:
            step = Step(self.settings, now)
            together = list(islice(offsets, offset_rules.TOGETHER_MAX))
            unchanged = [one for one in together if group.offsets.get(one[0], {}).get(one[1]) is one[2]]
            is_all = offset_rules.expire(group, unchanged, step)
            if is_all and is_small and group.state is GroupState.EMPTY and not group.pending:
                step.write(group, None)
            own[id(step.effects)] = step.effects
            yield self.groups.sent(group, step.effects)
            if is_small or not together or self._groups.get(group_id) is not group:
                return
            if group.in_flight.keys() - own.keys():  # a commit that came meanwhile may be for any that is left
                return

    def committed_offsets(self, group_id: str) -> Iterator[tuple[str, int, int]]:
        """Topic, partition and offset of every commit of a group. It may go on while the group changes."""
        group = self._groups.get(group_id)
        if group is not None:
            for topic, partitions in tuple(group.offsets.items()):
                for partition, value in tuple(partitions.items()):
                    yield topic, partition, offset_in(value)

    def offset_count(self, group_id: str) -> int:
        """How many offsets a group has."""
        group = self._groups.get(group_id)
        return 0 if group is None else sum(map(len, group.offsets.values()))

    def topics_deleted(self, topics: Mapping[str, UUID]) -> Iterator[Effects]:
        """Tombstones of all offsets of the topics with these ids: for each group apart, and a few at a time.

        The state may change in between: what is committed then for a new topic of the same name stays.
        """
        for group in tuple(self._groups.values()):
            keys = tuple(group.offset_keys(topics))
            for start in range(0, len(keys) or 1, offset_rules.TOGETHER_MAX):
                effects = Effects()
                if self._groups.get(group.group_id) is group:
                    together = keys[start : start + offset_rules.TOGETHER_MAX]
                    offset_rules.bury_of_topics(group, together, topics, effects)
                yield self.groups.sent(group, effects)

    # --- groups ---------------------------------------------------------------------------------------------

    def delete_some_offsets(self, group_id: str, token: Token) -> Effects:
        """Removes a few offsets of a group that is being deleted and has more than one batch takes; answers with an
        error code."""
        effects = Effects()
        group = self._groups.get(group_id)
        if group is None or group.state is not GroupState.EMPTY:
            code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.NON_EMPTY_GROUP
            effects.replies.append(Reply(token, code))
            return effects
        for topic, partition, _ in islice(offset_rules.list_offsets(group), offset_rules.TOGETHER_MAX):
            offset_rules.bury(group, topic, partition, effects)
        effects.replies.append(Reply(token, _NONE))
        return self.groups.sent(group, effects)

    def delete_group(self, group_id: str, token: Token) -> Effects:
        """Answers with an error code."""
        effects = Effects()
        group = self._groups.get(group_id)
        if group is None:
            effects.replies.append(Reply(token, ErrorCode.GROUP_ID_NOT_FOUND))
            return effects
        if group.state is not GroupState.EMPTY:
            effects.replies.append(Reply(token, ErrorCode.NON_EMPTY_GROUP))
            return effects
        step = Step(self.settings, _ANY_MOMENT, effects)
        offset_rules.delete_all(group, effects)
        leaving.forget_pending(group, step)
        step.write(group, None)
        step.reply(token, _NONE)
        return self.groups.sent(group, effects)

    def describe(self, group_id: str) -> GroupDescription | None:
        group = self._groups.get(group_id)
        if group is None:
            return None
        is_stable = group.state is GroupState.STABLE
        members = [
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata_for(group.protocol) if is_stable else b"",
                member.assignment,
            )
            for member in group.members.values()
        ]
        protocol = group.protocol if is_stable else None
        return GroupDescription(group_id, group.state, group.protocol_type or "", protocol or "", members)

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> Iterator[GroupListing]:
        """Those that there are now, one by one. Filters by names in small letters; an empty filter takes all."""
        if types and CLASSIC_GROUP_TYPE not in types:
            return
        for group in tuple(self._groups.values()):
            if not states or group.state.value.lower() in states:
                yield GroupListing(group.group_id, group.protocol_type or "", group.state)
