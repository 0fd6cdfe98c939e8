"""SyncGroup, versions 0 to 5, by hand: a whole group sends it at once, the leader with everybody's assignment.

```
request   group id | generation int32 | member id | from 3 instance id, nullable
          | from 5 protocol type and protocol, both nullable | assignments: member id, assignment
response  from 1 throttle time int32 | error code int16 | from 5 protocol type and protocol, both nullable | assignment
```

Flexible from version 4. Equal to kio's codec, which a test holds.
"""

from struct import Struct
from typing import Final, NamedTuple

from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedRequest
from barnabas.wire.primitives import (
    INT16,
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
from barnabas.wire.steps import Steps, finish

FLEXIBLE_FROM: Final = APIS[ApiKey.SYNC_GROUP].flexible_from
THROTTLE_FROM: Final = 1
INSTANCE_ID_FROM: Final = 3
PROTOCOL_FROM: Final = 5

_ASSIGNMENTS_MAX: Final = 20_000
"""More members than any group has."""
_READ_TOGETHER: Final = 200

_THROTTLE_AND_ERROR: Final = Struct(">ih")


class SyncGroupRequest(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: list[tuple[str, bytes]]


def decode_sync_group_request(version: int, body: memoryview) -> SyncGroupRequest:
    return finish(decode_sync_group_request_in_steps(version, body))


def decode_sync_group_request_in_steps(version: int, body: memoryview) -> Steps[SyncGroupRequest]:
    """The request at last, with a pause after every few assignments."""
    try:
        return (yield from _decode(version, body, version >= FLEXIBLE_FROM))
    except UNREADABLE as problem:
        raise MalformedRequest(f"SyncGroupRequest version {version}: {problem}") from None


def _decode(version: int, data: memoryview, is_flexible: bool) -> Steps[SyncGroupRequest]:
    group_id, position = read_string(data, 0, is_flexible)
    (generation,) = INT32.unpack_from(data, position)
    member_id, position = read_string(data, position + 4, is_flexible)
    instance_id = protocol_type = protocol = None
    if version >= INSTANCE_ID_FROM:
        instance_id, position = read_nullable_string(data, position, is_flexible)
    if version >= PROTOCOL_FROM:
        protocol_type, position = read_nullable_string(data, position, is_flexible)
        protocol, position = read_nullable_string(data, position, is_flexible)
    count, position = read_count(data, position, is_flexible)
    if count > _ASSIGNMENTS_MAX:
        raise ValueError(f"{count} assignments")
    assignments = []
    for number in range(count):
        if number % _READ_TOGETHER == _READ_TOGETHER - 1:
            yield
        assigned_id, position = read_string(data, position, is_flexible)
        assignment, position = read_bytes(data, position, is_flexible)
        if is_flexible:
            position = skip_tagged_fields(data, position)
        assignments.append((assigned_id, assignment))
    if is_flexible:
        skip_tagged_fields(data, position)
    return SyncGroupRequest(group_id, generation, member_id, instance_id, protocol_type, protocol, assignments)


def encode_sync_group_response(
    version: int,
    error: ErrorCode,
    protocol_type: str | None,
    protocol: str | None,
    assignment: bytes,
    throttle_ms: int = 0,
) -> bytes:
    is_flexible = version >= FLEXIBLE_FROM
    encoded = [_THROTTLE_AND_ERROR.pack(throttle_ms, error) if version >= THROTTLE_FROM else INT16.pack(error)]
    if version >= PROTOCOL_FROM:
        encoded.append(nullable_string(protocol_type, True))
        encoded.append(nullable_string(protocol, True))
    encoded.append(array_count(len(assignment), is_flexible))
    encoded.append(assignment)
    if is_flexible:
        encoded.append(NO_TAGGED_FIELDS)
    return b"".join(encoded)
