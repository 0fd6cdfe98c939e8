"""The one API that a client may call before it knows what the broker speaks.

A client begins with the newest version that it has. When the broker does not know it, the answer is a version-0 body
with UNSUPPORTED_VERSION and the range of ApiVersions alone, after which the client asks again. The response header is
version 0 always (`apis`).
"""

import re
from struct import Struct
from typing import Final

from barnabas.wire.apis import APIS, Api, ApiKey
from barnabas.wire.errors import ErrorCode

_BODY_OF_ONE: Final = Struct(">hihhh")
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")


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
