"""The codecs of `__consumer_offsets`, against bytes that Apache Kafka 4.3.1's own classes wrote.

tests/compat/test_group_records.py compares with a live Kafka class path.
"""

import pytest

from barnabas.base.uuid import parse_uuid
from barnabas.groups.records import (
    CommittedOffset,
    CorruptGroupRecord,
    GroupChange,
    GroupMetadata,
    MemberMetadata,
    OffsetChange,
    check_offsets,
    decode_offset,
    decode_record,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from barnabas.groups.replay import Replay
from barnabas.groups.settings import GroupSettings
from barnabas.groups.state import GroupShardState
from tests.support.group_records import (
    EMPTY_GROUP_VALUES,
    GROUP_KEY,
    GROUP_VALUES,
    LEGACY_OFFSET_KEY,
    OFFSET_KEY,
    OFFSET_VALUES,
    TOPIC_ID_TEXT,
)

TOPIC_ID = parse_uuid(TOPIC_ID_TEXT)
OFFSET = CommittedOffset(1234567890123, 5, "mäta", 1700000000000, None, TOPIC_ID)
MEMBER = MemberMetadata("m-1", "inst", "client", "/127.0.0.1", 300_000, 45_000, b"\x01\x02", b"\x03\x04\x05")
GROUP = GroupMetadata("consumer", 3, "range", "m-1", 1700000000001, (MEMBER,))


def offset_of(value: bytes) -> CommittedOffset:
    change = decode_record(OFFSET_KEY, value)
    assert isinstance(change, OffsetChange)
    assert change.value == value
    return decode_offset(value)


def group_of(value: bytes) -> GroupMetadata:
    change = decode_record(GROUP_KEY, value)
    assert isinstance(change, GroupChange)
    assert change.value is not None
    return change.value


def load(keys: list[bytes], values: list[bytes | None]) -> GroupShardState:
    replay, state = Replay(), GroupShardState(GroupSettings(), lambda: "")
    replay.add_all(keys, values)
    assert replay.build_into(state.groups, limit=100)
    return state


def test_keys_are_kafkas_bytes() -> None:
    assert encode_offset_key("grüppe", "orders", 7) == OFFSET_KEY
    assert encode_group_key("grüppe") == GROUP_KEY


@pytest.mark.parametrize("key", [OFFSET_KEY, LEGACY_OFFSET_KEY])
def test_offset_key_of_both_types_is_read(key: bytes) -> None:
    assert decode_record(key, None) == OffsetChange("grüppe", "orders", 7, None)


def test_group_key_without_value_is_tombstone() -> None:
    assert decode_record(GROUP_KEY, None) == GroupChange("grüppe", None)


def test_offset_with_topic_id_is_written_as_kafkas_version_4() -> None:
    assert encode_offset(OFFSET) == OFFSET_VALUES["4"]
    assert encode_offset(OFFSET._replace(metadata="")) == OFFSET_VALUES["4, no metadata"]


def test_offset_without_topic_id_is_written_as_kafkas_version_4() -> None:
    plain = CommittedOffset(1234567890123, 5, "mäta", 1700000000000)
    assert encode_offset(plain) == OFFSET_VALUES["4, no topic id"]
    assert encode_offset(plain._replace(metadata="")) == OFFSET_VALUES["4, neither"]


def test_offset_with_time_of_expiry_is_written_as_kafkas_version_1() -> None:
    assert encode_offset(CommittedOffset(9, -1, "", 11, 12)) == OFFSET_VALUES["1"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0", CommittedOffset(1234567890123, -1, "mäta", 1700000000000)),
        ("1", CommittedOffset(9, -1, "", 11, 12)),
        ("2", CommittedOffset(1234567890123, -1, "mäta", 1700000000000)),
        ("3", CommittedOffset(1234567890123, 5, "mäta", 1700000000000)),
        ("4", OFFSET),
        ("4, no topic id", CommittedOffset(1234567890123, 5, "mäta", 1700000000000)),
        ("4, no metadata", OFFSET._replace(metadata="")),
        ("4, neither", CommittedOffset(1234567890123, 5, "", 1700000000000)),
    ],
)
def test_offset_of_every_version_is_read(version: str, expected: CommittedOffset) -> None:
    assert offset_of(OFFSET_VALUES[version]) == expected


def test_offset_with_unknown_tagged_field_is_read() -> None:
    assert offset_of(OFFSET_VALUES["4, neither"][:-1] + b"\x01\x07\x02xx").offset == OFFSET.offset


def test_group_is_written_as_kafkas_version_3() -> None:
    assert encode_group(GROUP) == GROUP_VALUES[3]
    assert encode_group(GroupMetadata("", 0, None, None, -1, ())) == EMPTY_GROUP_VALUES[3]


@pytest.mark.parametrize("version", range(5))
def test_group_of_every_version_is_read(version: int) -> None:
    member = MEMBER
    if version < 1:  # one timeout for both
        member = member._replace(rebalance_timeout_ms=45_000)
    if version < 3:
        member = member._replace(instance_id=None)
    timestamp_ms = GROUP.state_timestamp_ms if version >= 2 else -1
    assert group_of(GROUP_VALUES[version]) == GroupMetadata("consumer", 3, "range", "m-1", timestamp_ms, (member,))
    assert group_of(EMPTY_GROUP_VALUES[version]) == GroupMetadata("", 0, None, None, -1, ())


@pytest.mark.parametrize("record_type", [3, 8, 16, 23, 99])
def test_record_of_newer_kind_of_group_is_skipped(record_type: int) -> None:
    assert decode_record(record_type.to_bytes(2, "big") + b"\x00\x01g", b"\x00\x00whatever") is None


DAMAGED = [
    (b"", None),
    (b"\x00", None),
    (OFFSET_KEY[:-1], None),
    (OFFSET_KEY + b"\x00", None),
    (OFFSET_KEY[:3], None),
    (GROUP_KEY[:-1], None),
    (b"\x00\x02\xff\xff", None),
    (OFFSET_KEY, b""),
    (OFFSET_KEY, b"\x00\x05" + OFFSET_VALUES["4"][2:]),
    (OFFSET_KEY, OFFSET_VALUES["4"][:12]),
    (OFFSET_KEY, OFFSET_VALUES["4"][:-3]),
    (GROUP_KEY, b"\xff\xff" + GROUP_VALUES[3][2:]),
    (GROUP_KEY, GROUP_VALUES[3][:-4]),
    (GROUP_KEY, EMPTY_GROUP_VALUES[3][:-4] + b"\x7f\xff\xff\xff"),
]


@pytest.mark.parametrize(("key", "value"), DAMAGED)
def test_damaged_record_is_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptGroupRecord):
        decode_record(key, value)


@pytest.mark.parametrize(("key", "value"), DAMAGED)
def test_damaged_record_among_others_is_refused_when_they_are_loaded(key: bytes, value: bytes | None) -> None:
    keys = [GROUP_KEY, OFFSET_KEY, encode_offset_key("g", "orders", 1), key]
    values = [GROUP_VALUES[3], OFFSET_VALUES["4"], OFFSET_VALUES["4, no metadata"], value]
    with pytest.raises(CorruptGroupRecord):
        load(keys, values)


def test_offset_of_the_older_type_is_replaced_by_one_of_the_newer() -> None:
    older, newer = OFFSET_VALUES["0"], encode_offset(OFFSET._replace(offset=77))
    (found,) = load([OFFSET_KEY, LEGACY_OFFSET_KEY], [newer, older]).fetch_offsets("grüppe", "orders", [7])
    assert found is not None
    assert found.offset == 77


PLAIN = OFFSET_VALUES["4, no metadata"]


@pytest.mark.parametrize("values", [[PLAIN] * 3, list(OFFSET_VALUES.values()), [OFFSET_VALUES["4, neither"]], []])
def test_check_of_many_offsets_passes_every_version(values: list[bytes]) -> None:
    check_offsets(values)


@pytest.mark.parametrize("position", [0, 1, 14, 23, 25])
def test_check_of_many_offsets_finds_the_one_that_is_damaged(position: int) -> None:
    damaged = bytearray(PLAIN)
    damaged[position] = 0x7F
    with pytest.raises(CorruptGroupRecord):
        check_offsets([PLAIN, PLAIN, bytes(damaged), PLAIN])
