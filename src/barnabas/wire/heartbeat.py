"""Heartbeat, versions 0 to 4, by hand: thousands of members send one every few seconds.

```
request   group id | generation int32 | member id | from version 3 instance id, nullable
response  from version 1 throttle time int32 | error code int16
```

Flexible from version 4. Equal to kio's codec, which a test holds.
"""

from struct import Struct
from typing import Final, NamedTuple

from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedRequest
from barnabas.wire.primitives import INT32, UNREADABLE, read_nullable_string, read_string, skip_tagged_fields

FLEXIBLE_FROM: Final = APIS[ApiKey.HEARTBEAT].flexible_from
INSTANCE_ID_FROM: Final = 3
THROTTLE_FROM: Final = 1

_ERROR: Final = Struct(">h")
_THROTTLE_AND_ERROR: Final = Struct(">ih")
_THROTTLE_ERROR_AND_TAGS: Final = Struct(">ihB")


class HeartbeatRequest(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


def decode_heartbeat_request(version: int, body: memoryview) -> HeartbeatRequest:
    is_flexible = version >= FLEXIBLE_FROM
    try:
        group_id, position = read_string(body, 0, is_flexible)
        (generation,) = INT32.unpack_from(body, position)
        member_id, position = read_string(body, position + 4, is_flexible)
        instance_id = None
        if version >= INSTANCE_ID_FROM:
            instance_id, position = read_nullable_string(body, position, is_flexible)
        if is_flexible:
            skip_tagged_fields(body, position)
    except UNREADABLE as problem:
        raise MalformedRequest(f"HeartbeatRequest version {version}: {problem}") from None
    return HeartbeatRequest(group_id, generation, member_id, instance_id)


def encode_heartbeat_response(version: int, error: ErrorCode, throttle_ms: int = 0) -> bytes:
    if version >= FLEXIBLE_FROM:
        return _THROTTLE_ERROR_AND_TAGS.pack(throttle_ms, error, 0)
    if version >= THROTTLE_FROM:
        return _THROTTLE_AND_ERROR.pack(throttle_ms, error)
    return _ERROR.pack(error)
