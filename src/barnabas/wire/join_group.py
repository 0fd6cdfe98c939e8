"""JoinGroup, versions 0 to 9, by hand: a whole group sends it twice at once, and the leader's answer names everybody.

```
request   group id | session timeout int32 | from 1 rebalance timeout int32 | member id | from 5 instance id, nullable
          | protocol type | protocols: name, metadata | from 8 reason, nullable
response  from 2 throttle time int32 | error code int16 | generation int32 | from 7 protocol type, nullable
          | protocol, from 7 nullable | leader | from 9 skip assignment, one byte | member id
          | members: member id, from 5 instance id, nullable, metadata
```

Flexible from version 6. Equal to kio's codec, which a test holds.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedRequest
from barnabas.wire.primitives import (
    INT32,
    NO_TAGGED_FIELDS,
    UNREADABLE,
    array_count,
    nullable_string,
    read_bytes,
    read_count,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
)

FLEXIBLE_FROM: Final = APIS[ApiKey.JOIN_GROUP].flexible_from
REBALANCE_TIMEOUT_FROM: Final = 1
THROTTLE_FROM: Final = 2
INSTANCE_ID_FROM: Final = 5
NULLABLE_PROTOCOL_FROM: Final = 7
REASON_FROM: Final = 8
SKIP_ASSIGNMENT_FROM: Final = 9

_PROTOCOLS_MAX: Final = 1000
"""A client knows a handful."""

_TIMEOUTS: Final = Struct(">ii")
_ERROR_AND_GENERATION: Final = Struct(">hi")
_THROTTLE_ERROR_AND_GENERATION: Final = Struct(">ihi")
_TRUE, _FALSE = b"\x01", b"\x00"

JoinedMember: TypeAlias = tuple[str, str | None, bytes]
"""Member id, instance id, metadata. A plain tuple: a leader gets one for every member."""


class JoinGroupRequest(NamedTuple):
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """Before version 1 there was only one timeout."""
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    reason: str | None


def decode_join_group_request(version: int, body: memoryview) -> JoinGroupRequest:
    try:
        return _decode(version, body, version >= FLEXIBLE_FROM)
    except UNREADABLE as problem:
        raise MalformedRequest(f"JoinGroupRequest version {version}: {problem}") from None


def _decode(version: int, data: memoryview, is_flexible: bool) -> JoinGroupRequest:
    group_id, position = read_string(data, 0, is_flexible)
    if version >= REBALANCE_TIMEOUT_FROM:
        session_timeout_ms, rebalance_timeout_ms = _TIMEOUTS.unpack_from(data, position)
        position += 8
    else:
        (session_timeout_ms,) = INT32.unpack_from(data, position)
        rebalance_timeout_ms = session_timeout_ms
        position += 4
    member_id, position = read_string(data, position, is_flexible)
    instance_id = reason = None
    if version >= INSTANCE_ID_FROM:
        instance_id, position = read_nullable_string(data, position, is_flexible)
    protocol_type, position = read_string(data, position, is_flexible)
    count, position = read_count(data, position, is_flexible)
    if count > _PROTOCOLS_MAX:
        raise ValueError(f"{count} protocols")
    protocols = []
    for _ in range(count):
        name, position = read_string(data, position, is_flexible)
        metadata, position = read_bytes(data, position, is_flexible)
        if is_flexible:
            position = skip_tagged_fields(data, position)
        protocols.append((name, metadata))
    if version >= REASON_FROM:
        reason, position = read_nullable_string(data, position, is_flexible)
    if is_flexible:
        skip_tagged_fields(data, position)
    return JoinGroupRequest(
        group_id,
        session_timeout_ms,
        rebalance_timeout_ms,
        member_id,
        instance_id,
        protocol_type,
        tuple(protocols),
        reason,
    )


def encode_join_group_response(
    version: int,
    error: ErrorCode,
    generation: int,
    protocol_type: str | None,
    protocol: str | None,
    leader: str,
    member_id: str,
    members: Sequence[JoinedMember],
    *,
    skip_assignment: bool = False,
    throttle_ms: int = 0,
) -> bytes:
    """No protocol is empty text for the versions that cannot say null."""
    is_flexible = version >= FLEXIBLE_FROM
    if version >= THROTTLE_FROM:
        encoded = [_THROTTLE_ERROR_AND_GENERATION.pack(throttle_ms, error, generation)]
    else:
        encoded = [_ERROR_AND_GENERATION.pack(error, generation)]
    if version >= NULLABLE_PROTOCOL_FROM:
        encoded.append(nullable_string(protocol_type, True))
    elif protocol is None:
        protocol = ""
    encoded.append(nullable_string(protocol, is_flexible))
    encoded.append(nullable_string(leader, is_flexible))
    if version >= SKIP_ASSIGNMENT_FROM:
        encoded.append(_TRUE if skip_assignment else _FALSE)
    encoded.append(nullable_string(member_id, is_flexible))
    encoded.append(array_count(len(members), is_flexible))
    for joined_id, instance_id, metadata in members:
        encoded.append(nullable_string(joined_id, is_flexible))
        if version >= INSTANCE_ID_FROM:
            encoded.append(nullable_string(instance_id, is_flexible))
        encoded.append(array_count(len(metadata), is_flexible))
        encoded.append(metadata)
        if is_flexible:
            encoded.append(NO_TAGGED_FIELDS)
    if is_flexible:
        encoded.append(NO_TAGGED_FIELDS)
    return b"".join(encoded)
