"""All groups of one partition of `__consumer_offsets`, as far as the log decides: replaying, and records on their way.

Pure. Durable state (committed offsets, the group as its last rebalance left it) changes here alone: by `_apply`, which
`replay` calls for records read from the log and `committed` for records that this state asked to append, and by
`take_offsets`, which is many calls of it in one. So start-up, failover and daily work are one code path.

Records that are appended and not yet known to be committed stand in `Group.in_flight`. They end in one of three ways:

| what is known | call |
|---|---|
| they are below the high watermark | `committed`; what follows comes out |
| they were certainly not written | `refused`; the state goes on |
| nothing, or the leadership is lost | `abandon`; all tokens are answered, the state is dropped and loaded anew |

After the last replayed record every group is brought to life by `revive`, in as many slices as the caller likes.
"""

from collections.abc import Iterable, Iterator, Mapping

from barnabas.base.clock import Moment
from barnabas.groups import sync as syncing
from barnabas.groups.effects import AssignmentWritten, Effects, Reason, Token
from barnabas.groups.group import Group
from barnabas.groups.rebalance import Step, keep_alive, prepare
from barnabas.groups.records import DurableChange, GroupMetadata, OffsetChange, decode_record
from barnabas.groups.settings import GroupSettings
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode


class LoggedGroups:
    """See the module's text."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self._groups: dict[str, Group] = {}
        self._counts = dict.fromkeys(GroupState, 0)
        self.skipped_records = 0
        """Records of kinds of groups that are not served here."""

    def group_ids(self) -> list[str]:
        return list(self._groups)

    def counts(self) -> dict[GroupState, int]:
        """How many groups are in each state."""
        return dict(self._counts)

    def __len__(self) -> int:
        return len(self._groups)

    # --- replaying ------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Takes one record read from the log."""
        change = decode_record(key, value)
        if change is None:
            self.skipped_records += 1
        else:
            self._apply(change, None)

    def take_offsets(self, group_id: str, topic: str, offsets: dict[int, bytes]) -> None:
        """Takes the offsets of a topic's partitions, as their records have them. The dictionary is the state's then."""
        group = self._groups.get(group_id) or self._create(group_id, None)
        group.apply_offsets(topic, offsets)

    def revive(self, group_ids: Iterable[str], now: Moment) -> Effects:
        """All records are replayed: members of these groups go on if they were stable, with a new session each."""
        step = Step(self.settings, now)
        for group_id in group_ids:
            group = self._groups[group_id]
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

    # --- records on their way -------------------------------------------------------------------------------

    def committed(self, effects: Effects, now: Moment) -> Effects | None:
        """These records are below the high watermark. Gives what follows, if anything does."""
        for record in effects.records:
            self._apply(record.change, now.wall_ms)
        written = effects.continuation
        following = None
        if isinstance(written, AssignmentWritten):
            step = Step(self.settings, now)
            syncing.assignment_written(written, step)
            following = self._sent(written.group, step.effects)
        self._landed(effects)
        return following

    def refused(self, effects: Effects, error: ErrorCode, now: Moment) -> Effects:
        """These records were certainly not written. The replies of `effects` are the coordinator's to refuse."""
        written = effects.continuation
        step = Step(self.settings, now)
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

    # --- checks ---------------------------------------------------------------------------------------------

    def durable_groups(self) -> Iterator[tuple[str, GroupMetadata | None, Mapping[str, Mapping[int, bytes]]]]:
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

    # --- for those that build on this -----------------------------------------------------------------------

    def _create(self, group_id: str, now_ms: int | None) -> Group:
        group = self._groups[group_id] = Group(group_id, now_ms, self._counts)
        return group

    def _sent(self, group: Group, effects: Effects) -> Effects:
        """Notes that these records are on their way."""
        if effects.records:
            effects.groups = (group,)
            group.in_flight[id(effects)] = effects
        return effects

    def _drop_if_unused(self, group: Group) -> None:
        if group.is_unused and self._groups.get(group.group_id) is group:
            self._drop(group)

    # --- own ------------------------------------------------------------------------------------------------

    def _apply(self, change: DurableChange, now_ms: int | None) -> None:
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

    def _landed(self, effects: Effects) -> None:
        for group in effects.groups:
            group.in_flight.pop(id(effects), None)
            if group.is_buried:
                self._drop_if_unused(group)
        effects.groups = ()

    def _drop(self, group: Group) -> None:
        del self._groups[group.group_id]
        group.forget()
