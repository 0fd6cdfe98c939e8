"""Many records at once are replayed as one after the other."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.uuid import ZERO_UUID
from barnabas.groups.records import (
    CommittedOffset,
    GroupMetadata,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from barnabas.groups.replay import Replay
from barnabas.groups.settings import GroupSettings
from barnabas.groups.state import GroupShardState

_GROUPS = st.sampled_from(["kitchen", "billing"])
_OFFSET_KEYS = st.builds(encode_offset_key, _GROUPS, st.sampled_from(["orders", "bills"]), st.integers(0, 2))
_OFFSETS = st.builds(
    CommittedOffset,
    st.integers(0, 9),
    st.integers(-1, 3),
    st.sampled_from(["", "a note"]),
    st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.sampled_from([ZERO_UUID, UUID(int=7)]),
).map(encode_offset)
_METADATA = encode_group(GroupMetadata("consumer", 3, None, None, 5, ()))
_UNKNOWN = (b"\x00\x09of another kind", b"\x00\x00")
_ROWS = st.one_of(
    st.tuples(_OFFSET_KEYS, st.none() | _OFFSETS),
    st.tuples(_GROUPS.map(encode_group_key), st.sampled_from([None, _METADATA])),
    st.just(_UNKNOWN),
)


def _new_state() -> GroupShardState:
    return GroupShardState(GroupSettings(), lambda: "member")


def _contents(state: GroupShardState) -> dict[str, object]:
    return {group_id: (metadata, offsets) for group_id, metadata, offsets in state.groups.durable_groups()}


@given(st.lists(_ROWS, max_size=30), st.integers(1, 5))
def test_load_in_slices_has_the_last_value_of_each_key(rows: list[tuple[bytes, bytes | None]], limit: int) -> None:
    one_by_one, loaded, replay = _new_state(), _new_state(), Replay()
    for key, value in rows:
        one_by_one.groups.replay(key, value)
    replay.add_all([key for key, _ in rows], [value for _, value in rows])
    while not replay.build_into(loaded.groups, limit):
        pass
    one_by_one.revive(one_by_one.groups.group_ids(), 0)
    loaded.revive(loaded.groups.group_ids(), 0)
    loaded.groups.check_invariants()
    assert _contents(loaded) == _contents(one_by_one)
