"""The records of `__consumer_offsets`: keys and values as bytes, and as values.

Pure, and byte-compatible with Apache Kafka 4.3. A key begins with the record's type, a value with its version:

| type | key | value |
|---|---|---|
| 0, 1 | group, topic, partition | `CommittedOffset`, versions 0-4 |
| 2 | group | `GroupMetadata`, versions 0-4 |

Types 3 and up belong to Kafka's newer kinds of groups. They are not an error, only nothing to us: `decode_record` gives
None. No value is a tombstone. A committed offset is kept as the bytes that the log has for it, and decoded when
somebody asks: a broker may have millions, which the garbage collector then need not know of.

An offset is written as version 4 (with the topic's id in tagged field 0 when it is known), or as version 1 when it
carries its own time of expiry, which no other version can; a group as version 3. Only version 4 of either is flexible.
Bytes that are no such record raise `CorruptGroupRecord`; a broker wrote them, so it is the log that is damaged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import NO_EPOCH, NO_TIMESTAMP
from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.primitives import (
    INT16,
    INT32,
    INT64,
    UNREADABLE,
    UUID_BYTES,
    nullable_string,
    read_bytes,
    read_count,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    skip_tagged_fields,
    uuid_of,
)

LEGACY_OFFSET_TYPE: Final = 0
OFFSET_TYPE: Final = 1
GROUP_TYPE: Final = 2
_OFFSET_KEY_START: Final = INT16.pack(OFFSET_TYPE)
_OFFSET_TYPES: Final = (LEGACY_OFFSET_TYPE, OFFSET_TYPE)

OFFSET_VALUE_VERSION: Final = 4
EXPIRING_OFFSET_VALUE_VERSION: Final = 1
GROUP_VALUE_VERSION: Final = 3
_NEWEST_VERSION: Final = 4
_FLEXIBLE_VERSION: Final = 4

_PLAIN_OFFSET: Final = Struct(">hqiBqB")
_PLAIN_OFFSET_WITH_TOPIC_ID: Final = Struct(">hqiBqBBB16s")
_OFFSET_AND_EPOCH: Final = Struct(">qi")
_EMPTY_COMPACT_TEXT: Final = 1
_TOPIC_ID_TAG: Final = 0
_TOPIC_ID_FIELD: Final = (1, _TOPIC_ID_TAG, UUID_BYTES)
"""One tagged field: the count, its tag and its length in bytes."""
_PLAIN_START: Final = INT16.pack(OFFSET_VALUE_VERSION)
_TOPIC_ID_START: Final = bytes(_TOPIC_ID_FIELD)
_PLAIN_SHAPE: Final = (
    *enumerate(_PLAIN_START),
    (14, _EMPTY_COMPACT_TEXT),
    *enumerate(_TOPIC_ID_START, start=23),
)
"""The bytes that do not vary in what is packed by `_PLAIN_OFFSET_WITH_TOPIC_ID`, and where they are."""
_NAMES_CACHE_ENTRIES: Final = 4096
_LAYOUTS_REMEMBERED: Final = 64


class CorruptGroupRecord(BarnabasError):  # noqa: N818 - a fact about bytes, named as one
    """A record of `__consumer_offsets` that cannot be read."""


class CommittedOffset(NamedTuple):
    """Where a group goes on reading a partition."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int | None = None
    """When it expires, whatever the broker's retention says; only old clients asked for this."""
    topic_id: UUID = ZERO_UUID


class MemberMetadata(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A group as its last completed rebalance left it."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


class OffsetChange(NamedTuple):
    """An offset was committed, or removed when there is no value."""

    group_id: str
    topic: str
    partition: int
    value: bytes | None
    """A `CommittedOffset`, encoded, and known to be one."""


class GroupChange(NamedTuple):
    """A group was written, or removed when there is no value."""

    group_id: str
    value: GroupMetadata | None


DurableChange: TypeAlias = OffsetChange | GroupChange


# --- writing ----------------------------------------------------------------------------------------------


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """An offset's key up to the partition's number."""
    return INT16.pack(OFFSET_TYPE) + nullable_string(group_id, False) + nullable_string(topic, False)


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return offset_key_prefix(group_id, topic) + INT32.pack(partition)


def encode_group_key(group_id: str) -> bytes:
    return INT16.pack(GROUP_TYPE) + nullable_string(group_id, False)


def encode_offset(value: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id = value
    if expire_timestamp_ms is not None:
        return b"".join(
            (
                INT16.pack(EXPIRING_OFFSET_VALUE_VERSION),
                INT64.pack(offset),
                nullable_string(metadata, False),
                INT64.pack(commit_timestamp_ms),
                INT64.pack(expire_timestamp_ms),
            )
        )
    if not metadata:  # what nearly every commit is
        if not topic_id.int:
            return _PLAIN_OFFSET.pack(
                OFFSET_VALUE_VERSION, offset, leader_epoch, _EMPTY_COMPACT_TEXT, commit_timestamp_ms, 0
            )
        return _PLAIN_OFFSET_WITH_TOPIC_ID.pack(
            OFFSET_VALUE_VERSION,
            offset,
            leader_epoch,
            _EMPTY_COMPACT_TEXT,
            commit_timestamp_ms,
            *_TOPIC_ID_FIELD,
            topic_id.int.to_bytes(UUID_BYTES, "big"),
        )
    tagged = b"\0" if not topic_id.int else bytes(_TOPIC_ID_FIELD) + topic_id.bytes
    return b"".join(
        (
            INT16.pack(OFFSET_VALUE_VERSION),
            _OFFSET_AND_EPOCH.pack(offset, leader_epoch),
            nullable_string(metadata, True),
            INT64.pack(commit_timestamp_ms),
            tagged,
        )
    )


def encode_group(value: GroupMetadata) -> bytes:
    parts = [
        INT16.pack(GROUP_VALUE_VERSION),
        nullable_string(value.protocol_type, False),
        INT32.pack(value.generation),
        nullable_string(value.protocol, False),
        nullable_string(value.leader, False),
        INT64.pack(value.state_timestamp_ms),
        INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            nullable_string(member.member_id, False),
            nullable_string(member.instance_id, False),
            nullable_string(member.client_id, False),
            nullable_string(member.client_host, False),
            INT32.pack(member.rebalance_timeout_ms),
            INT32.pack(member.session_timeout_ms),
            INT32.pack(len(member.subscription)),
            member.subscription,
            INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


# --- reading ----------------------------------------------------------------------------------------------


def decode_record(key: bytes, value: bytes | None) -> DurableChange | None:
    """What a record says; None when it is of a type that is not ours."""
    try:
        (record_type,) = INT16.unpack_from(key)
        if record_type in _OFFSET_TYPES:
            group_id, topic = _names_in(key[2:-4])
            (partition,) = INT32.unpack_from(key, len(key) - 4)
            if value is not None:
                decode_offset(value)
            return OffsetChange(group_id, topic, partition, value)
        if record_type == GROUP_TYPE:
            group_id, _ = read_string(key, 2, False)
            return GroupChange(group_id, None if value is None else _decode_group(value))
    except UNREADABLE as error:
        raise CorruptGroupRecord(f"a record of __consumer_offsets with the key {key[:64]!r}: {error}") from error
    return None


def is_offset_prefix(prefix: bytes) -> bool:
    """Whether what `split_offset_keys` gave belongs to an offset's key, of the type that is written now."""
    return prefix.startswith(_OFFSET_KEY_START)


def split_offset_keys(keys: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[int]]:
    """All up to the partition's number, and that number, of each key. For other keys than offsets' it means nothing.

    All are taken apart together: millions of them are read before a broker's groups are there.
    """
    lengths = list(map(len, keys))
    if min(lengths, default=INT32.size) < INT32.size:
        raise CorruptGroupRecord("a key of __consumer_offsets has fewer than four bytes")
    if lengths.count(lengths[0]) == len(lengths):
        layout = _layout_of(lengths[0], len(lengths))
    else:
        layout = Struct(">" + "".join(map(_KEY_FORMATS.__getitem__, lengths)))
    parts = layout.unpack(b"".join(keys))
    return parts[::2], parts[1::2]


class _KeyFormats(dict[int, str]):
    """How `struct` calls the key of an offset, by its length."""

    def __missing__(self, length: int) -> str:
        known = self[length] = f"{length - INT32.size}si"
        return known


_KEY_FORMATS: Final = _KeyFormats()
"""No more than there are lengths."""


@lru_cache(maxsize=_LAYOUTS_REMEMBERED)
def _layout_of(length: int, count: int) -> Struct:
    return Struct(">" + _KEY_FORMATS[length] * count)


def names_in(prefix: bytes) -> tuple[str, str]:
    """The group and topic in what `split_offset_keys` gave for an offset's key."""
    try:
        return _names_in(prefix[2:])
    except UNREADABLE as error:
        raise CorruptGroupRecord(f"a key of __consumer_offsets, {prefix[:64]!r}: {error}") from error


def check_offsets(values: Sequence[bytes]) -> None:
    """Raises `CorruptGroupRecord` unless all of these are the values of offsets.

    Nearly all have one shape, so that the bytes that make it are compared for all at once.
    """
    if not _are_plain(values):
        for value in values:
            decode_offset(value)


def _are_plain(values: Sequence[bytes]) -> bool:
    """Whether all have a topic id and no metadata, as nearly every commit."""
    size_bytes = _PLAIN_OFFSET_WITH_TOPIC_ID.size
    if set(map(len, values)) != {size_bytes}:
        return False
    together = b"".join(values)
    return all(together[at::size_bytes].count(expected) == len(values) for at, expected in _PLAIN_SHAPE)


@lru_cache(maxsize=_NAMES_CACHE_ENTRIES)
def _names_in(names: bytes) -> tuple[str, str]:
    """The group and topic of an offset's key. Remembered, because the partitions of a topic follow each other."""
    group_id, position = read_string(names, 0, False)
    topic, position = read_string(names, position, False)
    if position != len(names):
        raise ValueError(f"{len(names) - position} bytes too many")
    return group_id, topic


def _version_of(value: bytes) -> int:
    version: int = INT16.unpack_from(value)[0]
    if not 0 <= version <= _NEWEST_VERSION:
        raise ValueError(f"version {version} of its value is not known")
    return version


def offset_in(value: bytes) -> int:
    """The offset alone, of an encoded `CommittedOffset` of any version."""
    offset: int = INT64.unpack_from(value, INT16.size)[0]
    return offset


def decode_offset(value: bytes) -> CommittedOffset:
    """The value of an offset's record. Nearly all have one of two shapes."""
    try:
        if len(value) == _PLAIN_OFFSET_WITH_TOPIC_ID.size:
            if value.startswith(_PLAIN_START) and value[14] == _EMPTY_COMPACT_TEXT and value[23:26] == _TOPIC_ID_START:
                _, offset, epoch, _, commit_timestamp_ms, _, _, _, topic_id = _PLAIN_OFFSET_WITH_TOPIC_ID.unpack(value)
                return CommittedOffset(offset, epoch, "", commit_timestamp_ms, None, uuid_of(topic_id))
        elif len(value) == _PLAIN_OFFSET.size:
            version, offset, epoch, text, commit_timestamp_ms, tagged_count = _PLAIN_OFFSET.unpack(value)
            if version == OFFSET_VALUE_VERSION and text == _EMPTY_COMPACT_TEXT and not tagged_count:
                return CommittedOffset(offset, epoch, "", commit_timestamp_ms)
        return _decode_any_offset(value)
    except UNREADABLE as error:
        raise CorruptGroupRecord(f"an offset of __consumer_offsets, {value[:64]!r}: {error}") from error


def _decode_any_offset(value: bytes) -> CommittedOffset:
    version = _version_of(value)
    is_flexible = version >= _FLEXIBLE_VERSION
    leader_epoch, expire_timestamp_ms, topic_id = NO_EPOCH, None, ZERO_UUID
    (offset,) = INT64.unpack_from(value, 2)
    position = 10
    if version >= 3:
        (leader_epoch,) = INT32.unpack_from(value, position)
        position += 4
    metadata, position = read_string(value, position, is_flexible)
    (commit_timestamp_ms,) = INT64.unpack_from(value, position)
    position += 8
    if version == EXPIRING_OFFSET_VALUE_VERSION:
        (expires,) = INT64.unpack_from(value, position)
        expire_timestamp_ms = None if expires == NO_TIMESTAMP else expires
    if is_flexible and value[position]:
        tagged, _ = read_tagged_fields(value, position)
        if _TOPIC_ID_TAG in tagged:
            topic_id = uuid_of(bytes(tagged[_TOPIC_ID_TAG]))
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id)


def _decode_group(value: bytes) -> GroupMetadata:
    version = _version_of(value)
    is_flexible = version >= _FLEXIBLE_VERSION
    protocol_type, position = read_string(value, 2, is_flexible)
    (generation,) = INT32.unpack_from(value, position)
    protocol, position = read_nullable_string(value, position + 4, is_flexible)
    leader, position = read_nullable_string(value, position, is_flexible)
    state_timestamp_ms = NO_TIMESTAMP
    if version >= 2:
        (state_timestamp_ms,) = INT64.unpack_from(value, position)
        position += 8
    count, position = read_count(value, position, is_flexible)
    members = []
    for _ in range(count):
        member, position = _decode_member(value, position, version)
        members.append(member)
    return GroupMetadata(protocol_type, generation, protocol, leader, state_timestamp_ms, tuple(members))


def _decode_member(value: bytes, position: int, version: int) -> tuple[MemberMetadata, int]:
    is_flexible = version >= _FLEXIBLE_VERSION
    member_id, position = read_string(value, position, is_flexible)
    instance_id = None
    if version >= 3:
        instance_id, position = read_nullable_string(value, position, is_flexible)
    client_id, position = read_string(value, position, is_flexible)
    client_host, position = read_string(value, position, is_flexible)
    rebalance_timeout_ms = -1
    if version >= 1:
        (rebalance_timeout_ms,) = INT32.unpack_from(value, position)
        position += 4
    (session_timeout_ms,) = INT32.unpack_from(value, position)
    if rebalance_timeout_ms == -1:  # before version 1 there was only one timeout
        rebalance_timeout_ms = session_timeout_ms
    subscription, position = read_bytes(value, position + 4, is_flexible)
    assignment, position = read_bytes(value, position, is_flexible)
    if is_flexible:
        position = skip_tagged_fields(value, position)
    return (
        MemberMetadata(
            member_id,
            instance_id,
            client_id,
            client_host,
            rebalance_timeout_ms,
            session_timeout_ms,
            subscription,
            assignment,
        ),
        position,
    )
