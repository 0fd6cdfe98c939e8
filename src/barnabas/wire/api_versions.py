"""The one API that a client may call before it knows what the broker speaks.

A client begins with the newest version that it has. When the broker does not know it, the answer is a version-0 body
with UNSUPPORTED_VERSION and the range of ApiVersions alone, after which the client asks again. The response header is
version 0 always (`apis`).

By hand, because everybody asks it first, and the first use of one of kio's modules takes milliseconds:

```
request   from 3 software name | software version
response  error code int16 | APIs: key, least and greatest version int16 | from 1 throttle time int32
```

Flexible from version 3. Equal to kio's codec, which a test holds.
"""

import re
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from barnabas.wire.apis import APIS, Api, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedRequest
from barnabas.wire.primitives import (
    INT16,
    INT32,
    NO_TAGGED_FIELDS,
    UNREADABLE,
    array_count,
    read_string,
    skip_tagged_fields,
)

FLEXIBLE_FROM: Final = APIS[ApiKey.API_VERSIONS].flexible_from
SOFTWARE_FROM: Final = 3
THROTTLE_FROM: Final = 1

_BODY_OF_ONE: Final = Struct(">hihhh")
_RANGE: Final = Struct(">hhh")
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")


class Software(NamedTuple):
    """What a client is."""

    name: str
    version: str


def decode_api_versions_request(version: int, body: memoryview) -> Software | None:
    """None when this version does not say."""
    if version < SOFTWARE_FROM:
        return None
    try:
        name, position = read_string(body, 0, True)
        software_version, position = read_string(body, position, True)
        skip_tagged_fields(body, position)
    except UNREADABLE as problem:
        raise MalformedRequest(f"ApiVersionsRequest version {version}: {problem}") from None
    return Software(name, software_version)


def encode_api_versions_response(version: int, error: ErrorCode, apis: Sequence[Api], throttle_ms: int = 0) -> bytes:
    is_flexible = version >= FLEXIBLE_FROM
    encoded = [INT16.pack(error), array_count(len(apis), is_flexible)]
    for api in apis:
        encoded.append(_RANGE.pack(api.key, api.advertised_min, api.version_max))
        if is_flexible:
            encoded.append(NO_TAGGED_FIELDS)
    if version >= THROTTLE_FROM:
        encoded.append(INT32.pack(throttle_ms))
    if is_flexible:
        encoded.append(NO_TAGGED_FIELDS)
    return b"".join(encoded)


def unsupported_version_body() -> bytes:
    """The answer to an ApiVersions request of a version that is not served."""
    api = APIS[ApiKey.API_VERSIONS]
    return _BODY_OF_ONE.pack(ErrorCode.UNSUPPORTED_VERSION, 1, api.key, api.advertised_min, api.version_max)


def advertised_apis() -> tuple[Api, ...]:
    """What ApiVersions lists, in the order of the keys: from `advertised_min` to `version_max`."""
    return tuple(APIS[key] for key in sorted(APIS))


def is_software_text(text: str) -> bool:
    """Whether Kafka takes this as a client's software name or version; else the answer is INVALID_REQUEST."""
    return _SOFTWARE.fullmatch(text) is not None
