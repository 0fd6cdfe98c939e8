"""All groups of one partition of `__consumer_offsets`: the calls that a coordinator makes, and what replaying does.

Pure: no I/O, no clock, no randomness. One `GroupShardState` belongs to one partition for as long as this broker leads
it; one task owns it. A call changes soft state at once and returns `effects.Effects`. Durable state (committed offsets,
the group as its last rebalance left it) changes only by `_apply`, which `replay` calls for records read from the log
and `committed` for records that this state asked to append: start-up, failover and daily work are one code path.

`now_ms` is wall-clock time that must not jump: sessions are measured with it, too.

Whatever the coordinator does not know for sure (an append that may or may not have been written, lost leadership), it
calls `abandon`, answers all tokens, drops the state, and loads a new one from the log. An append that certainly wrote
nothing needs no reload: `refused`.

Not here: authorization, empty group ids, whether topics exist; the handlers do that.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from uuid import UUID

from barnabas.base.uuid import ZERO_UUID
from barnabas.groups import join as joining
from barnabas.groups import leave as leaving
from barnabas.groups import offsets as offset_rules
from barnabas.groups import sync as syncing
from barnabas.groups.effects import (
    AssignmentWritten,
    Effects,
    Reason,
    Reply,
    TimerKey,
    TimerKind,
    Token,
)
from barnabas.groups.group import Group
from barnabas.groups.rebalance import (
    Step,
    complete_join,
    initial_delay_over,
    keep_alive,
    prepare,
    session_timer_fired,
)
from barnabas.groups.records import (
    TEXT_BYTES_MAX,
    CommittedOffset,
    DurableChange,
    GroupMetadata,
    OffsetChange,
    decode_offset,
    decode_record,
    is_offset_key,
    partition_in,
)
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

_NONE = ErrorCode.NONE
_UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
_REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
_PREPARING = GroupState.PREPARING_REBALANCE


class GroupShardState:
    def __init__(self, settings: GroupSettings, new_uuid_text: Callable[[], str]) -> None:
        self.settings = settings
        self._new_uuid_text = new_uuid_text
        self._groups: dict[str, Group] = {}
        self._counts = dict.fromkeys(GroupState, 0)
        self.skipped_records = 0
        """Records of kinds of groups that are not served here."""

    # --- membership -----------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, token: Token, now_ms: int) -> Effects:
        step = Step(self.settings, now_ms)
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
            group = self._create(request.group_id, now_ms)
        joining.join(group, request, token, self._new_uuid_text, step)
        if is_new_group and not step.effects.records:
            # As in Kafka, a group is there from the first join on, even from one that it refuses.
            step.write(group, GroupMetadata("", 0, None, None, now_ms, ()))
        return self._sent(group, step.effects)

    def sync(self, request: SyncRequest, token: Token, now_ms: int) -> Effects:
        step = Step(self.settings, now_ms)
        group = self._groups.get(request.group_id)
        if group is None:
            step.reply(token, SyncResult(_UNKNOWN_MEMBER))
            return step.effects
        syncing.sync(group, request, token, step)
        return self._sent(group, step.effects)

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, now_ms: int
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
        member.last_seen_ms = now_ms
        return _REBALANCING if group.state is _PREPARING else _NONE

    def leave(self, group_id: str, members: Sequence[LeavingMember], token: Token, now_ms: int) -> Effects:
        step = Step(self.settings, now_ms)
        group = self._groups.get(group_id)
        if group is None:
            left = [LeftMember(member.member_id, member.instance_id, _UNKNOWN_MEMBER) for member in members]
            step.reply(token, LeaveResult(_NONE, left))
            return step.effects
        left = leaving.leave(group, members, step)
        step.reply(token, LeaveResult(_NONE, left))
        return self._sent(group, step.effects)

    def timer_fired(self, key: TimerKey, now_ms: int) -> Effects:
        """A timer that is too late for what it was set for does nothing."""
        step = Step(self.settings, now_ms)
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
        return self._sent(group, step.effects)

    # --- offsets --------------------------------------------------------------------------------------------

    def commit_offsets(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        offsets: Sequence[OffsetToCommit],
        token: Token,
        now_ms: int,
        retention_ms: int | None = None,
    ) -> Effects:
        """Answers with an error code for each offset; raises `KafkaError` when the whole request is refused.

        GROUP_ID_NOT_FOUND is what version 9 and up is told; before that it is ILLEGAL_GENERATION.
        """
        group = self._groups.get(group_id)
        if group is None:
            if generation >= 0:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            if len(group_id.encode()) > TEXT_BYTES_MAX:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            group = self._create(group_id, now_ms)
        else:
            offset_rules.check_commit(group, generation, member_id, instance_id)
            member = group.members.get(member_id)
            if member is not None:
                member.last_seen_ms = now_ms  # as good as a heartbeat
        effects = Effects()
        expire_timestamp_ms = None if retention_ms is None else now_ms + retention_ms
        errors = offset_rules.commit(group, offsets, effects, self.settings, now_ms, expire_timestamp_ms)
        effects.replies.append(Reply(token, errors))
        if not effects.records:
            self._drop_if_unused(group)
        return self._sent(group, effects)

    def fetch_offsets(
        self,
        group_id: str,
        topic: str,
        partitions: Sequence[int],
        topic_id: UUID = ZERO_UUID,
        require_stable: bool = False,
    ) -> list[CommittedOffset | None]:
        """None where nothing is committed. Without transactions every committed offset is a stable one."""
        group = self._groups.get(group_id)
        if group is None:
            return [None] * len(partitions)
        return offset_rules.fetch(group, topic, partitions, topic_id)

    def fetch_all_offsets(
        self, group_id: str, require_stable: bool = False
    ) -> dict[str, list[tuple[int, CommittedOffset]]]:
        group = self._groups.get(group_id)
        if group is None:
            return {}
        return {topic: sorted(group.offsets[topic].items()) for topic in sorted(group.offsets)}

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]], token: Token) -> Effects:
        """Answers with an error code for each partition; raises `KafkaError` when the whole request is refused."""
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        offset_rules.check_offset_delete(group)
        effects = Effects()
        effects.replies.append(Reply(token, offset_rules.delete(group, partitions, effects)))
        return self._sent(group, effects)

    def expire_offsets(self, group_id: str, now_ms: int) -> Effects:
        """Tombstones of what has expired, and of the group when it is empty and has no offset left."""
        step = Step(self.settings, now_ms)
        group = self._groups.get(group_id)
        if group is None or group.in_flight:
            return step.effects
        if offset_rules.expire(group, step) and group.state is GroupState.EMPTY and not group.pending:
            step.write(group, None)
        return self._sent(group, step.effects)

    def topics_deleted(self, topics: Collection[str]) -> Effects:
        """Tombstones of all offsets of these topics."""
        effects = Effects()
        touched = []
        for group in self._groups.values():
            of_topics = [key for key in group.offset_keys() if key[0] in topics]
            for topic, partition in of_topics:
                offset_rules.bury(group, topic, partition, effects)
            if of_topics:
                touched.append(group)
        effects.groups = tuple(touched)
        for group in touched:
            group.in_flight[id(effects)] = effects
        return effects

    # --- groups ---------------------------------------------------------------------------------------------

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
        step = Step(self.settings, 0, effects)
        offset_rules.delete_all(group, effects)
        leaving.forget_pending(group, step)
        step.write(group, None)
        step.reply(token, _NONE)
        return self._sent(group, effects)

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

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Filters by names in any case; an empty filter takes all."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {group_type.lower() for group_type in types}
        if wanted_types and CLASSIC_GROUP_TYPE not in wanted_types:
            return []
        return [
            GroupListing(group.group_id, group.protocol_type or "", group.state)
            for group in self._groups.values()
            if not wanted_states or group.state.value.lower() in wanted_states
        ]

    def group_ids(self) -> list[str]:
        return list(self._groups)

    def counts(self) -> dict[GroupState, int]:
        """How many groups are in each state."""
        return dict(self._counts)

    def __len__(self) -> int:
        return len(self._groups)

    # --- the log --------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Takes one record read from the log."""
        change = decode_record(key, value)
        if change is None:
            self.skipped_records += 1
        else:
            self._apply(change, None)

    def replay_many(self, rows: Iterable[tuple[bytes, bytes | None]]) -> int:
        """The same for many, and how many they were. Most are offsets, of which many have group and topic in common."""
        partitions_of: dict[bytes, dict[int, CommittedOffset]] = {}
        count = 0
        for key, value in rows:
            count += 1
            names = key[:-4]
            if value is None or not is_offset_key(key):
                partitions_of.clear()  # it may remove what these refer to
                self.replay(key, value)
            elif (partitions := partitions_of.get(names)) is not None:
                partitions[partition_in(key)] = decode_offset(value)
            else:
                change = decode_record(key, value)
                assert isinstance(change, OffsetChange)
                self._apply(change, None)
                partitions_of[names] = self._groups[change.group_id].offsets[change.topic]
        return count

    def loaded(self, now_ms: int) -> Effects:
        """All records are replayed: members of stable groups go on, with a new session each."""
        step = Step(self.settings, now_ms)
        for group in tuple(self._groups.values()):
            if group.durable is not None:
                group.restore()
            elif not group.offsets:
                self._drop(group)
                continue
            for member in group.members.values():
                keep_alive(group, member, step)
            if len(group.members) > self.settings.group_size_max:
                prepare(group, (step.cause(Reason.OVER_CAPACITY),), step)
        return step.effects

    def committed(self, effects: Effects, now_ms: int) -> Effects | None:
        """These records are below the high watermark. Gives what follows, if anything does."""
        for record in effects.records:
            self._apply(record.change, now_ms)
        written = effects.continuation
        following = None
        if isinstance(written, AssignmentWritten):
            step = Step(self.settings, now_ms)
            syncing.assignment_written(written, step)
            following = self._sent(written.group, step.effects)
        self._landed(effects)
        return following

    def refused(self, effects: Effects, error: ErrorCode, now_ms: int) -> Effects:
        """These records were certainly not written. The replies of `effects` are the coordinator's to refuse."""
        written = effects.continuation
        step = Step(self.settings, now_ms)
        groups = effects.groups
        self._landed(effects)
        for group in groups:
            self._drop_if_unused(group)  # what would have made it known is not in the log
        if written is None:
            return step.effects
        group = written.group
        if isinstance(written, AssignmentWritten):
            syncing.assignment_refused(written, error, step)
        elif group.state is GroupState.STABLE:
            prepare(group, (step.cause(Reason.WRITE_REFUSED),), step)
        return self._sent(group, step.effects)

    def abandon(self) -> list[Token]:
        """The state is given up: everyone who waits for a join or a sync. (Replies with records are not here.)"""
        tokens: list[Token] = []
        for group in self._groups.values():
            tokens += group.joining.values()
            tokens += group.syncing.values()
            group.joining.clear()
            group.syncing.clear()
        return tokens

    def durable_groups(self) -> Iterator[tuple[str, GroupMetadata | None, dict[str, dict[int, CommittedOffset]]]]:
        """What the log says, by group: for comparing with a replay."""
        for group in self._groups.values():
            if group.durable is not None or group.offsets:
                yield group.group_id, group.durable, group.offsets

    def check_invariants(self) -> None:
        for group_id, group in self._groups.items():
            assert group.group_id == group_id
            assert group.state is not GroupState.DEAD
            assert not (group.is_buried and group.is_unused), f"{group_id} is kept for nothing"
            group.check_invariants()
        assert sum(self._counts.values()) == len(self._groups)

    # --- own ------------------------------------------------------------------------------------------------

    def _create(self, group_id: str, now_ms: int | None) -> Group:
        group = self._groups[group_id] = Group(group_id, now_ms, self._counts)
        return group

    def _apply(self, change: DurableChange, now_ms: int | None) -> None:
        """The one way by which durable state changes."""
        group = self._groups.get(change.group_id)
        if group is None:
            if change.value is None:
                return
            group = self._create(change.group_id, now_ms)
        if isinstance(change, OffsetChange):
            group.apply_offset(change.topic, change.partition, change.value)
        else:
            group.apply_metadata(change.value)
        if group.is_buried:
            self._drop_if_unused(group)

    def _sent(self, group: Group, effects: Effects) -> Effects:
        """Notes that these records are on their way."""
        if effects.records:
            effects.groups = (group,)
            group.in_flight[id(effects)] = effects
        return effects

    def _landed(self, effects: Effects) -> None:
        for group in effects.groups:
            group.in_flight.pop(id(effects), None)
            if group.is_buried:
                self._drop_if_unused(group)
        effects.groups = ()

    def _drop_if_unused(self, group: Group) -> None:
        if group.is_unused and self._groups.get(group.group_id) is group:
            self._drop(group)

    def _drop(self, group: Group) -> None:
        del self._groups[group.group_id]
        group.forget()
