"""The groups of one partition of `__consumer_offsets`, as the log has them: found by id, replayed, changed by records.

Pure. Durable state (committed offsets, the group as its last rebalance left it) changes here alone: by `apply`, which
`replay` calls for records read from the log and `GroupShardState.committed` for records that this broker appended, and
by `take_offsets`, which is many calls of it in one. So start-up, failover and daily work are one code path.

Records that are appended and not yet known to be committed stand in `Group.in_flight`, from `sent` to `landed`. A group
of which the log knows nothing, and that nobody uses, is dropped.
"""

from collections.abc import Iterator, Mapping

from barnabas.groups.effects import Effects
from barnabas.groups.group import Group
from barnabas.groups.records import DurableChange, GroupMetadata, OffsetChange, decode_record
from barnabas.groups.transitions import GroupState


class LoggedGroups:
    """Owner: the `GroupShardState` that it is part of."""

    __slots__ = ("_counts", "by_id", "skipped_records")

    def __init__(self) -> None:
        self.by_id: dict[str, Group] = {}
        self._counts = dict.fromkeys(GroupState, 0)
        self.skipped_records = 0
        """Records of kinds of groups that are not served here."""

    def group_ids(self) -> list[str]:
        return list(self.by_id)

    def counts(self) -> dict[GroupState, int]:
        """How many groups are in each state."""
        return dict(self._counts)

    def __len__(self) -> int:
        return len(self.by_id)

    # --- what the log says ----------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Takes one record read from the log."""
        change = decode_record(key, value)
        if change is None:
            self.skipped_records += 1
        else:
            self.apply(change, None)

    def take_offsets(self, group_id: str, topic: str, offsets: dict[int, bytes]) -> None:
        """Takes the offsets of a topic's partitions, as their records have them. The dictionary is the state's then."""
        group = self.by_id.get(group_id) or self.create(group_id, None)
        group.apply_offsets(topic, offsets)

    def apply(self, change: DurableChange, now_ms: int | None) -> None:
        """A record below the high watermark says this; `now_ms` is None where the log was read back."""
        group = self.by_id.get(change.group_id)
        if group is None:
            if change.value is None:
                return
            group = self.create(change.group_id, now_ms)
        if isinstance(change, OffsetChange):
            group.apply_offset(change.topic, change.partition, change.value)
        else:
            group.apply_metadata(change.value)
        if group.is_buried:
            self.drop_if_unused(group)

    def durable_groups(self) -> Iterator[tuple[str, GroupMetadata | None, Mapping[str, Mapping[int, bytes]]]]:
        """What the log says, by group: for comparing with a replay."""
        for group in self.by_id.values():
            if group.durable is not None or group.offsets:
                yield group.group_id, group.durable, group.offsets

    # --- records on their way -------------------------------------------------------------------------------

    def sent(self, group: Group, effects: Effects) -> Effects:
        """Notes that these records are on their way."""
        if effects.records:
            effects.groups = (group,)
            group.in_flight[id(effects)] = effects
        return effects

    def landed(self, effects: Effects) -> None:
        """They are committed, or certainly not written."""
        for group in effects.groups:
            group.in_flight.pop(id(effects), None)
            if group.is_buried:
                self.drop_if_unused(group)
        effects.groups = ()

    # --- coming and going -----------------------------------------------------------------------------------

    def create(self, group_id: str, now_ms: int | None) -> Group:
        group = self.by_id[group_id] = Group(group_id, now_ms, self._counts)
        return group

    def drop_if_unused(self, group: Group) -> None:
        if group.is_unused and self.by_id.get(group.group_id) is group:
            self.drop(group)

    def drop(self, group: Group) -> None:
        del self.by_id[group.group_id]
        group.forget()

    def check_invariants(self) -> None:
        for group_id, group in self.by_id.items():
            assert group.group_id == group_id
            assert group.state is not GroupState.DEAD
            assert not (group.is_buried and group.is_unused), f"{group_id} is kept for nothing"
            group.check_invariants()
        assert sum(self._counts.values()) == len(self.by_id)
