"""Committed offsets: who may commit, what a commit writes, what expires, and what a deletion removes.

Pure. Offsets change when their records are committed to the log (`Group.apply_offset`), never here. What is appended
but not committed yet is in `Group.in_flight`: a deletion covers it, and expiry leaves such a group for its next round.

Offsets expire `offsets.retention.minutes` after
- the group became empty, when it has or had members, but never sooner than that after the commit itself: Kafka would
  take away at once what an administrator commits for a group that is empty for long;
- the commit, when it never had any (a simple group), or when a consumer group is stable and nobody in it reads the
  topic any more.
A commit that carries its own time of expiry (old clients) goes by that one.

A group may have very many offsets. What removes them does so a few at a time (`TOGETHER_MAX`), so that neither the
event loop nor a batch of the log has to take all of them at once; the group may change in between.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from barnabas.base.uuid import ZERO_UUID
from barnabas.groups.effects import DurableRecord, Effects
from barnabas.groups.group import Group
from barnabas.groups.rebalance import Step
from barnabas.groups.records import CommittedOffset, OffsetChange, decode_offset, encode_offset
from barnabas.groups.requests import OffsetToCommit
from barnabas.groups.settings import GroupSettings
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.primitives import INT32, TEXT_BYTES_MAX

CommittedValue: TypeAlias = tuple[str, int, bytes]
"""Topic, partition, and the value of the record."""

TOGETHER_MAX: Final = 500
"""Offsets that are looked at or removed at a time: a millisecond or two, with the log's part."""

# Looking a member of an enumeration up costs as much as a call, and commits are many.
_NONE: Final = ErrorCode.NONE
_EMPTY: Final = GroupState.EMPTY
_COMPLETING: Final = GroupState.COMPLETING_REBALANCE
_ACTIVE: Final = (GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


# --- commit -----------------------------------------------------------------------------------------------


def check_commit(group: Group, generation: int, member_id: str, instance_id: str | None) -> None:
    """Raises `KafkaError` when this member may not commit now. Its commit counts as a sign of life."""
    if group.state is _EMPTY and generation < 0:
        return
    if generation < 0 and not member_id and instance_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members, and only they can commit")
    error = group.member_error(member_id, instance_id)
    if error is not None:
        raise KafkaError(error)
    if generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"generation {generation}, but it is {group.generation} now")
    if group.state is _COMPLETING:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def commit(
    group: Group,
    offsets: Sequence[OffsetToCommit],
    effects: Effects,
    settings: GroupSettings,
    now_ms: int,
    expire_timestamp_ms: int | None,
) -> list[ErrorCode]:
    """Adds the records of these commits; a bad one does not stop the others."""
    errors: list[ErrorCode] = []
    records = effects.records
    group_id = group.group_id
    for topic, topic_id, partition, offset, leader_epoch, metadata in offsets:
        if metadata and _is_too_large(metadata, settings.metadata_bytes_max):
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        committed = CommittedOffset(offset, leader_epoch, metadata or "", now_ms, expire_timestamp_ms, topic_id)
        value = encode_offset(committed)
        key = group.key_prefix(topic) + INT32.pack(partition)
        records.append(DurableRecord(key, value, OffsetChange(group_id, topic, partition, value)))
        errors.append(_NONE)
    return errors


def _is_too_large(metadata: str, units_max: int) -> bool:
    """Counted as Kafka counts. Whatever the setting says, Kafka reads no text longer than an int16 tells."""
    if len(metadata) > min(units_max, TEXT_BYTES_MAX):
        return True
    return not metadata.isascii() and (
        len(metadata.encode("utf-16-le")) > 2 * units_max or len(metadata.encode()) > TEXT_BYTES_MAX
    )


# --- fetch ------------------------------------------------------------------------------------------------


def fetch(group: Group, topic: str, partitions: Iterable[int], topic_id: UUID) -> Iterator[CommittedOffset | None]:
    """The offsets of these partitions, decoded one by one. One of an earlier topic with the same name counts as
    none."""
    committed = group.offsets.get(topic, {})
    return (_of_topic(committed.get(partition), topic_id) for partition in partitions)


def fetch_all(group: Group) -> Iterator[tuple[str, Iterator[tuple[int, CommittedOffset]]]]:
    """All offsets by topic, decoded one by one; what changes meanwhile may be told or not."""
    for topic in sorted(group.offsets):
        values = sorted(group.offsets.get(topic, {}).items())
        yield topic, ((partition, decode_offset(value)) for partition, value in values)


def _of_topic(value: bytes | None, topic_id: UUID) -> CommittedOffset | None:
    if value is None:
        return None
    committed = decode_offset(value)
    return committed if topic_id == ZERO_UUID or committed.topic_id in (topic_id, ZERO_UUID) else None


# --- deletion and expiry ----------------------------------------------------------------------------------


def check_offset_delete(group: Group) -> None:
    """In a group with members offsets can only be deleted where the coordinator knows what they read."""
    if group.state in _ACTIVE and not group.is_consumer_group:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)


def delete(group: Group, partitions: Iterable[tuple[str, int]], effects: Effects) -> list[ErrorCode]:
    known = set(group.offset_keys())
    errors = []
    for topic, partition in partitions:
        if group.is_subscribed_to(topic):
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        if (topic, partition) in known:
            bury(group, topic, partition, effects)
            known.remove((topic, partition))
        errors.append(ErrorCode.NONE)
    return errors


def bury(group: Group, topic: str, partition: int, effects: Effects) -> None:
    """Adds an offset's tombstone."""
    key = group.key_prefix(topic) + INT32.pack(partition)
    effects.records.append(DurableRecord(key, None, OffsetChange(group.group_id, topic, partition, None)))


def delete_all(group: Group, effects: Effects) -> None:
    for topic, partition in tuple(group.offset_keys()):
        bury(group, topic, partition, effects)


def bury_of_topics(
    group: Group, partitions: Iterable[tuple[str, int]], topics: Mapping[str, UUID], effects: Effects
) -> None:
    """Adds tombstones of these offsets, as far as they are of the topics with these ids, and not of later ones."""
    coming = group.coming_offsets()
    for topic, partition in partitions:
        value = coming.get((topic, partition), group.offsets.get(topic, {}).get(partition))
        if value is not None and decode_offset(value).topic_id in (topics[topic], ZERO_UUID):
            bury(group, topic, partition, effects)


def list_offsets(group: Group) -> Iterator[CommittedValue]:
    """All committed offsets. It may go on while the group changes."""
    for topic in tuple(group.offsets):
        for partition, value in tuple(group.offsets.get(topic, {}).items()):
            yield topic, partition, value


def expire(group: Group, offsets: Iterable[CommittedValue], step: Step) -> bool:
    """Adds tombstones of those that have expired; says whether all of them have."""
    retention_started_ms = _retention_start(group)
    if retention_started_ms is None:
        return not group.offsets
    is_all = True
    for topic, partition, value in offsets:
        if group.is_subscribed_to(topic):
            is_all = False
            continue
        committed = decode_offset(value)
        expires_at_ms = committed.expire_timestamp_ms
        if expires_at_ms is None:
            expires_at_ms = retention_started_ms(committed) + step.settings.offsets_retention_ms
        if step.now.wall_ms >= expires_at_ms:
            bury(group, topic, partition, step.effects)
        else:
            is_all = False
    return is_all


def _retention_start(group: Group) -> Callable[[CommittedOffset], int] | None:
    """From when on an offset's retention counts; None when nothing of this group expires now."""
    if group.state is GroupState.EMPTY and group.protocol_type is not None:
        empty_since_ms = group.state_timestamp_ms
        if empty_since_ms is not None:
            since_ms = empty_since_ms
            return lambda committed: max(since_ms, committed.commit_timestamp_ms)
    elif group.protocol_type is not None and not (
        group.is_consumer_group and group.subscribed is not None and group.state is GroupState.STABLE
    ):
        return None
    return lambda committed: committed.commit_timestamp_ms
