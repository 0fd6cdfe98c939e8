"""Groups under any order of requests, timers, lost and refused appends and restarts.

A model beside the state knows what was answered: which member owns which partition in which generation, and which
commits were confirmed. After every step
- the state's own invariants hold, and a replay of the log gives its durable part;
- a generation has one leader, and at most one owner of each partition; what a member is given is in the log by then;
- a confirmed commit is there until something newer replaced, deleted or rightly expired it.
"""

from collections.abc import Sequence

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.groups.effects import Effects, Outcome, RebalanceCompleted, Reply
from barnabas.groups.protocols import Protocols
from barnabas.groups.records import GroupChange, OffsetChange, decode_offset
from barnabas.groups.requests import JoinResult, LeavingMember, SyncRequest, SyncResult
from barnabas.groups.settings import GroupSettings
from barnabas.groups.state import GroupShardState
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.group_shard import PlayedShard, subscription

GROUPS = ("g1", "g2")
TOPICS = ("orders", "bills")
PARTITIONS = 4
RETENTION_MS = 100_000

PROTOCOLS: tuple[Protocols, ...] = (
    (("range", subscription("orders")),),
    (("range", subscription("orders", "bills")), ("sticky", subscription("orders"))),
    (("sticky", b"x"), ("range", b"y")),
)

groups = st.sampled_from(GROUPS)
instances = st.sampled_from([None, None, "i1", "i2"])
partitions = st.tuples(st.sampled_from(TOPICS), st.integers(0, PARTITIONS - 1))


class WatchedShard(PlayedShard):
    """Keeps the model of committed offsets in the order of the log."""

    def __init__(self, group_settings: GroupSettings) -> None:
        super().__init__(group_settings)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.incarnations = dict.fromkeys(GROUPS, 0)

    def commit_appended(self, at_most: int | None = None) -> None:
        while self.appended and at_most != 0:
            self._note(self.appended[0])
            super().commit_appended(1)
            at_most = None if at_most is None else at_most - 1

    def restart(self, surviving: int = 0) -> None:
        for effects in list(self.appended)[:surviving]:
            self._note(effects)
        super().restart(surviving)

    def answer(self, replies: Sequence[Reply]) -> None:
        for token, result in replies:
            if isinstance(result, SyncResult) and result.error is ErrorCode.NONE:
                assert isinstance(token, int)
                self._check_durable(self.sync_requests[token], result.assignment)
        super().answer(replies)

    def _check_durable(self, request: SyncRequest, assignment: bytes) -> None:
        """What a member is given is in the log, and of its generation."""
        (metadata,) = [
            value for group_id, value, _ in self.state.groups.durable_groups() if group_id == request.group_id
        ]
        assert metadata is not None
        assert metadata.generation == request.generation
        assigned = {member.instance_id or member.member_id: member.assignment for member in metadata.members}
        assert assigned[request.instance_id or request.member_id] == assignment

    def _note(self, effects: Effects) -> None:
        for record in effects.records:
            change = record.change
            if isinstance(change, GroupChange):
                if change.value is None:  # nothing of the group is left, whatever tombstones there are
                    self.incarnations[change.group_id] += 1
                    self.offsets = {key: offset for key, offset in self.offsets.items() if key[0] != change.group_id}
            elif change.value is None:
                self.offsets.pop((change.group_id, change.topic, change.partition), None)
            else:
                self.offsets[change.group_id, change.topic, change.partition] = decode_offset(change.value).offset


class GroupMachine(RuleBasedStateMachine):
    initial_delay_ms = 3_000

    def __init__(self) -> None:
        super().__init__()
        self.shard = WatchedShard(
            GroupSettings(
                initial_rebalance_delay_ms=self.initial_delay_ms,
                group_size_max=4,
                offsets_retention_ms=RETENTION_MS,
                metadata_bytes_max=8,
            )
        )
        self.ids: dict[str, list[str]] = {group: ["", "stranger"] for group in GROUPS}
        self.instances: dict[str, str | None] = {}
        self.joins: dict[int, tuple[str, str | None]] = {}
        self.syncs: dict[int, tuple[str, str, int]] = {}
        self.leaders: dict[tuple[str, int, int, int], str] = {}
        self.owners: dict[tuple[str, int, int, bytes], str] = {}
        self.restarts = 0
        self.offset = 0

    def pick(self, group: str, index: int) -> str:
        ids = self.ids[group]
        return ids[-1 - index % len(ids)]

    def generation(self, group: str, off_by: int) -> int:
        live = self.shard.state.groups.by_id.get(group)
        return (live.generation if live is not None else 0) + off_by

    # --- requests -------------------------------------------------------------------------------------------

    @rule(group=groups, index=st.integers(0, 5), instance=instances, protocols=st.sampled_from(PROTOCOLS),
          known_id=st.booleans(), skips=st.booleans())  # fmt: skip
    def join(
        self, group: str, index: int, instance: str | None, protocols: Protocols, known_id: bool, skips: bool
    ) -> None:
        member_id = self.pick(group, index)
        instance = self.instances.get(member_id, instance) if member_id else instance
        token = self.shard.send_join(
            group, member_id, instance_id=instance, protocols=protocols, known_id=known_id, skips=skips
        )
        self.joins[token] = (group, instance)

    @rule(group=groups, instance=instances, protocols=st.sampled_from(PROTOCOLS))
    def member_comes(self, group: str, instance: str | None, protocols: Protocols) -> None:
        """Both steps of a join."""
        token = self.shard.send_join(group, instance_id=instance, protocols=protocols)
        self.joins[token] = (group, instance)
        result = self.shard.replies.get(token)
        if isinstance(result, JoinResult) and result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.joins[self.shard.send_join(group, result.member_id, protocols=protocols)] = (group, None)

    @rule(group=groups)
    def everybody_joins(self, group: str) -> None:
        live = self.shard.state.groups.by_id.get(group)
        for member in list(live.members.values()) if live is not None else []:
            token = self.shard.send_join(
                group, member.member_id, instance_id=member.instance_id, protocols=member.protocols
            )
            self.joins[token] = (group, member.instance_id)

    @rule(group=groups)
    def group_settles(self, group: str) -> None:
        """What well-behaved members do until the group is stable."""
        live = self.shard.state.groups.by_id.get(group)
        if live is not None and live.state is GroupState.PREPARING_REBALANCE and not live.is_initial_rebalance:
            self.everybody_joins(group)
        self.shard.advance(6_000)
        self.answers_agree()
        self.everybody_syncs(group)

    @rule(group=groups, index=st.integers(0, 5), off_by=st.sampled_from([0, 0, 0, 0, -1, 1]))
    def sync(self, group: str, index: int, off_by: int) -> None:
        self.send_sync(group, self.pick(group, index), self.generation(group, off_by))

    @rule(group=groups)
    def everybody_syncs(self, group: str) -> None:
        live = self.shard.state.groups.by_id.get(group)
        for member_id in list(live.members) if live is not None else []:
            self.send_sync(group, member_id, self.generation(group, 0))

    def send_sync(self, group: str, member_id: str, generation: int) -> None:
        live = self.shard.state.groups.by_id.get(group)
        members = live.members if live is not None else {}
        if member_id in members:  # perhaps an id whose owner is yet to hear of it
            self.instances.setdefault(member_id, members[member_id].instance_id)
        assignments = {
            owner: bytes(partition for partition in range(PARTITIONS) if partition % len(members) == place)
            for place, owner in enumerate(members)
        }
        token = self.shard.send_sync(
            group,
            generation,
            member_id,
            assignments,
            instance_id=self.instances.get(member_id),
            protocol_type=None,
            protocol=None,
        )
        self.syncs[token] = (group, member_id, generation)

    @rule(group=groups)
    def assignment_is_overtaken(self, group: str) -> None:
        """The group has gone on to its next generation before the assignment is in the log."""
        self.everybody_joins(group)
        self.shard.advance(6_000)
        self.answers_agree()
        self.shard.holds_appends = True
        self.everybody_syncs(group)
        live = self.shard.state.groups.by_id.get(group)
        leader = live.members.get(live.leader or "") if live is not None else None
        if leader is not None:
            changed = tuple((name, metadata + b"!") for name, metadata in leader.protocols)
            token = self.shard.send_join(group, leader.member_id, instance_id=leader.instance_id, protocols=changed)
            self.joins[token] = (group, leader.instance_id)
            self.everybody_joins(group)
            self.shard.commit_appended()
            self.answers_agree()
            self.everybody_syncs(group)

    @rule(group=groups)
    def static_members_return(self, group: str) -> None:
        """Under new ids; the old ones are fenced from then on."""
        live = self.shard.state.groups.by_id.get(group)
        for instance, old_id in list(live.static_ids.items()) if live is not None else []:
            protocols = live.members[old_id].protocols if live is not None else ()
            token = self.shard.send_join(group, instance_id=instance, protocols=protocols)
            self.joins[token] = (group, instance)
            result = self.shard.replies.get(token)
            if not isinstance(result, JoinResult) or result.error is not ErrorCode.GROUP_MAX_SIZE_REACHED:
                error = self.shard.heartbeat(group, self.generation(group, 0), old_id, instance)
                assert error is ErrorCode.FENCED_INSTANCE_ID

    @rule(group=groups, index=st.integers(0, 5), off_by=st.sampled_from([0, 0, 0, -1]))
    def heartbeat(self, group: str, index: int, off_by: int) -> None:
        member_id = self.pick(group, index)
        instance = self.instances.get(member_id)
        error = self.shard.heartbeat(group, self.generation(group, off_by), member_id, instance)
        live = self.shard.state.groups.by_id.get(group)
        if live is None or (member_id if instance is None else instance) not in live.members.keys() | live.static_ids:
            assert error is ErrorCode.UNKNOWN_MEMBER_ID
        elif instance is not None and live.static_ids[instance] != member_id:
            assert error is ErrorCode.FENCED_INSTANCE_ID
        elif off_by:
            assert error is ErrorCode.ILLEGAL_GENERATION
        else:
            is_joining = live.state is GroupState.PREPARING_REBALANCE
            assert error is (ErrorCode.REBALANCE_IN_PROGRESS if is_joining else ErrorCode.NONE)

    @rule(group=groups, index=st.integers(0, 5), instance=instances)
    def leave(self, group: str, index: int, instance: str | None) -> None:
        member_id = self.pick(group, index)
        leaving = LeavingMember(member_id, self.instances.get(member_id, instance), "done")
        token = self.shard.new_token()
        self.shard.carry_out(self.shard.state.leave(group, [leaving], token, self.shard.now))

    @rule(group=groups)
    def everybody_leaves(self, group: str) -> None:
        live = self.shard.state.groups.by_id.get(group)
        if live is not None:
            leaving = [LeavingMember(member.member_id, member.instance_id) for member in live.members.values()]
            token = self.shard.new_token()
            self.shard.carry_out(self.shard.state.leave(group, leaving, token, self.shard.now))

    @rule(group=groups, index=st.integers(0, 5), off_by=st.sampled_from([0, 0, -1]), where=partitions,
          simple=st.booleans())  # fmt: skip
    def commit(self, group: str, index: int, off_by: int, where: tuple[str, int], simple: bool) -> None:
        self.offset += 1
        member_id, generation = ("", -1) if simple else (self.pick(group, index), self.generation(group, off_by))
        live = self.shard.state.groups.by_id.get(group)
        try:
            self.shard.send_commit(group, {where: self.offset}, member_id=member_id, generation=generation)
        except KafkaError:
            return
        if live is not None and live.state is not GroupState.EMPTY:
            assert generation == live.generation
            assert member_id in live.members

    @rule(group=groups, where=partitions)
    def delete_offset(self, group: str, where: tuple[str, int]) -> None:
        if group in self.shard.state.groups.group_ids():
            self.shard.carry_out(self.shard.state.delete_offsets(group, [where], self.shard.new_token()))

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        self.shard.carry_out(self.shard.state.delete_group(group, self.shard.new_token()))

    @rule(group=groups, where=partitions)
    def commit_is_overtaken_by_deletion(self, group: str, where: tuple[str, int]) -> None:
        self.shard.holds_appends = True
        self.commit(group, 0, 0, where, simple=True)
        self.delete_group(group)

    @rule(group=groups)
    def expire(self, group: str) -> None:
        for effects in self.shard.state.expire_offsets(group, self.shard.now):
            for record in effects.records:
                change = record.change
                if isinstance(change, OffsetChange):
                    (value,) = self.shard.state.fetch_offsets(group, change.topic, [change.partition])
                    assert value is not None
                    assert self.shard.now_ms - value.commit_timestamp_ms >= RETENTION_MS
            self.shard.carry_out(effects)

    # --- the world ------------------------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([1, 2_999, 6_000, 10_000, 60_000, 100_000]), is_silent=st.booleans())
    def time_passes(self, milliseconds: int, is_silent: bool) -> None:
        while milliseconds > 0:
            slice_ms = milliseconds if is_silent else min(milliseconds, 5_000)
            self.shard.advance(slice_ms)
            milliseconds -= slice_ms
            for group_id, group in self.shard.state.groups.by_id.items():
                for member_id in group.members:
                    self.shard.heartbeat(group_id, group.generation, member_id)

    @rule()
    def appends_are_held(self) -> None:
        self.shard.holds_appends = True

    @rule(at_most=st.sampled_from([1, 2, None]))
    def appends_commit(self, at_most: int | None) -> None:
        if at_most is None:
            self.shard.holds_appends = False
        self.shard.commit_appended(at_most)

    @precondition(lambda self: len(self.shard.appended) == 1)
    @rule()
    def append_is_refused(self) -> None:
        self.shard.refuse_appended()

    @rule(surviving=st.integers(0, 3))
    def restart(self, surviving: int) -> None:
        self.shard.restart(surviving)
        self.shard.holds_appends = False
        self.restarts += 1

    # --- what must hold -------------------------------------------------------------------------------------

    @invariant()
    def answers_agree(self) -> None:
        for group in GROUPS:
            # A group that nobody knows any more begins anew, with its generations, too.
            self.shard.incarnations[group] += group not in self.shard.state.groups.group_ids()
        for token in [token for token in self.joins if token in self.shard.replies]:
            group, instance = self.joins.pop(token)
            result = self.shard.replies[token]
            if isinstance(result, JoinResult):
                self._check_joined(group, instance, result)
        for token in [token for token in self.syncs if token in self.shard.replies]:
            group, member_id, generation = self.syncs.pop(token)
            result = self.shard.replies[token]
            if isinstance(result, SyncResult) and result.error is ErrorCode.NONE:
                self._check_assigned(group, member_id, generation, result.assignment)

    def _check_joined(self, group: str, instance: str | None, result: JoinResult) -> None:
        if result.member_id and result.member_id not in self.ids[group]:
            self.ids[group].append(result.member_id)
            self.instances[result.member_id] = instance
        if result.error is ErrorCode.NONE and result.members and not result.skip_assignment:
            # The leader is who is told to assign; there is one in a generation of one coordinator.
            assert result.leader == result.member_id
            key = (group, self.shard.incarnations[group], self.restarts, result.generation)
            leader = self.instances[result.member_id] or result.member_id
            assert self.leaders.setdefault(key, leader) == leader

    def _check_assigned(self, group: str, member_id: str, generation: int, assignment: bytes) -> None:
        owner = self.instances[member_id] or member_id
        for partition in assignment:
            key = (group, self.shard.incarnations[group], generation, bytes((partition,)))
            assert self.owners.setdefault(key, owner) == owner, key

    @invariant()
    def state_is_sound(self) -> None:
        self.shard.state.groups.check_invariants()

    @invariant()
    def commits_are_there(self) -> None:
        found = {
            (group, topic, partition): value.offset
            for group in GROUPS
            for topic, offsets in self.shard.state.fetch_all_offsets(group)
            for partition, value in offsets
        }
        assert found == self.shard.offsets

    @invariant()
    def replay_gives_the_durable_state(self) -> None:
        one_by_one = GroupShardState(self.shard.settings, lambda: "")
        for key, value in self.shard.log:
            one_by_one.groups.replay(key, value)
        live = durable(self.shard.state)
        assert durable(one_by_one) == live
        assert durable(self.shard.replayed()) == live

    @invariant()
    def nobody_waits_without_a_timer(self) -> None:
        waiting = {key.group_id for key in self.shard.timers if not key.member_id}
        for group_id, group in self.shard.state.groups.by_id.items():
            if group.state is GroupState.PREPARING_REBALANCE:
                assert group_id in waiting
            timed = {key.member_id for key in self.shard.timers if key.group_id == group_id}
            assert group.members.keys() | group.pending <= timed

    @invariant()
    def story_is_consistent(self) -> None:
        for event in self.shard.events:
            if isinstance(event, RebalanceCompleted):
                assert event.causes
                assert event.started_at_ms <= event.completed_at_ms
                assert event.members_before >= 0
                assert (event.members_after == 0) == (event.outcome is Outcome.EMPTY) or (
                    event.outcome is Outcome.INTERRUPTED
                )
        self.shard.events.clear()


def durable(state: GroupShardState) -> dict[str, object]:
    return {group_id: (metadata, offsets) for group_id, metadata, offsets in state.groups.durable_groups()}


class UndelayedGroupMachine(GroupMachine):
    """Where a first rebalance waits for nobody but those that were given an id."""

    initial_delay_ms = 0


SETTINGS = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
GroupMachine.TestCase.settings = SETTINGS
UndelayedGroupMachine.TestCase.settings = settings(SETTINGS, max_examples=75)
test_groups_under_any_history = GroupMachine.TestCase
test_groups_without_initial_delay_under_any_history = UndelayedGroupMachine.TestCase
