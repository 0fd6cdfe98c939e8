"""What the records of `__consumer_offsets` say, for `barnabas log dump --records`.

| record | fields |
|---|---|
| `offset` | group, topic, partition; the offset, its epoch, metadata and times, or that it was removed |
| `group` | group; protocol, generation, leader and members with what they were assigned, or that it was removed |

A record of another type (Kafka's newer groups have some), or one that cannot be read, has its key and value as bytes.
"""

from contextlib import suppress
from typing import Any

from barnabas.base.ids import NO_EPOCH
from barnabas.client.group.consumer_protocol import decode_assignment
from barnabas.groups.records import (
    CorruptGroupRecord,
    GroupChange,
    GroupMetadata,
    MemberMetadata,
    OffsetChange,
    decode_offset,
    decode_record,
)
from barnabas.wire.errors import MalformedResponse


def group_fields(key: bytes | None, value: bytes | None) -> dict[str, Any] | None:
    """The fields of a record, `kind` first; None when it is not one that can be read."""
    if key is None:
        return None
    try:
        change = decode_record(key, value)
    except CorruptGroupRecord:
        return None
    if isinstance(change, OffsetChange):
        return {
            "kind": "offset",
            "group": change.group_id,
            "topic": change.topic,
            "partition": change.partition,
            **_offset_fields(change.value),
        }
    if isinstance(change, GroupChange):
        return {"kind": "group", "group": change.group_id, **_group_fields(change.value)}
    return None


def _offset_fields(value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {"removed": True}
    committed = decode_offset(value)
    fields: dict[str, Any] = {"committed": committed.offset}
    if committed.leader_epoch != NO_EPOCH:
        fields["leader_epoch"] = committed.leader_epoch
    fields |= {"metadata": committed.metadata, "commit_timestamp": committed.commit_timestamp_ms}
    if committed.expire_timestamp_ms is not None:
        fields["expire_timestamp"] = committed.expire_timestamp_ms
    return fields


def _group_fields(value: GroupMetadata | None) -> dict[str, Any]:
    if value is None:
        return {"removed": True}
    return {
        "protocol_type": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
        "members": [_member_fields(member, value.protocol_type) for member in value.members],
    }


def _member_fields(member: MemberMetadata, protocol_type: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
    }
    if protocol_type == "consumer":
        with suppress(MalformedResponse):
            fields["assignment"] = [str(partition) for partition in decode_assignment(member.assignment)]
    return fields
