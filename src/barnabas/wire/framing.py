"""What stands around a message: the length prefix and the headers.

```
request    length int32 | api key int16 | version int16 | correlation id int32 | client id | [tagged fields] | body
response   length int32 | correlation id int32 | [tagged fields] | body
```

The length counts what follows it. Tagged fields are there in flexible versions only (request header 2, response header
1); Kafka defines none, so ours are empty and a peer's are skipped. The client id is a legacy string in every version.

A frame here is what follows the length prefix. Header and body are encoded separately, because a body may be a list of
pieces that are sent one after the other: the sender puts `response_start` or `request_start` before them.
"""

from struct import Struct
from typing import Final, NamedTuple

from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.errors import MalformedRequest, MalformedResponse, UnservedRequest
from barnabas.wire.primitives import INT32, NO_TAGGED_FIELDS, UNREADABLE, nullable_string, skip_tagged_fields

LENGTH_BYTES: Final = 4
"""Of the prefix before each frame."""

_REQUEST_START: Final = Struct(">hhih")
_REQUEST_PREFIX: Final = Struct(">ihhi")
_RESPONSE_START: Final = Struct(">ii")
_RESPONSE_START_TAGGED: Final = Struct(">iiB")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    """Empty when it was null: Kafka does not tell the two apart."""
    body_position: int
    """Where the body begins in the frame."""


class ResponseHeader(NamedTuple):
    correlation_id: int
    body_position: int


# --- the broker's side ------------------------------------------------------------------------------------


def parse_request_header(frame: memoryview) -> RequestHeader:
    """The header of a request that is served, or of an ApiVersions request of any version.

    A client may ask for a version of ApiVersions that is not known yet, and is answered (see `api_versions`).
    Everything else that is not served raises `UnservedRequest`.
    """
    try:
        api_key, version, correlation_id, client_id_bytes = _REQUEST_START.unpack_from(frame)
        api = ALL_APIS.get(api_key)
        if api is None or not (api.version_min <= version <= api.version_max or api_key == ApiKey.API_VERSIONS):
            raise UnservedRequest(api_key, version)
        position = _REQUEST_START.size
        client_id = ""
        if client_id_bytes > 0:
            start, position = position, position + client_id_bytes
            if position > len(frame):
                raise ValueError("the client id is cut off")
            client_id = str(frame[start:position], "utf-8", "replace")
        if version >= api.flexible_from:
            position = skip_tagged_fields(frame, position)
    except UNREADABLE as problem:
        raise MalformedRequest(f"request header: {problem}") from None
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def response_start(api_key: int, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """Length prefix and header, for a body of `body_bytes`."""
    # `response_header_version`, in place
    if version < ALL_APIS[api_key].flexible_from or api_key == ApiKey.API_VERSIONS:
        return _RESPONSE_START.pack(4 + body_bytes, correlation_id)
    return _RESPONSE_START_TAGGED.pack(5 + body_bytes, correlation_id, 0)


# --- the client's side ------------------------------------------------------------------------------------


def request_start(api_key: int, version: int, correlation_id: int, client_id: str | None, body_bytes: int) -> bytes:
    """Length prefix and header, for a body of `body_bytes`."""
    tail = nullable_string(client_id, is_compact=False)
    if ALL_APIS[api_key].is_flexible(version):
        tail += NO_TAGGED_FIELDS
    return _REQUEST_PREFIX.pack(8 + len(tail) + body_bytes, api_key, version, correlation_id) + tail


def correlation_id_of(frame: memoryview) -> int:
    """The first field of every response: by it the client finds the request, and so how to read the rest."""
    try:
        (correlation_id,) = INT32.unpack_from(frame)
    except UNREADABLE as problem:
        raise MalformedResponse(f"response header: {problem}") from None
    assert isinstance(correlation_id, int)
    return correlation_id


def parse_response_header(api_key: int, version: int, frame: memoryview) -> ResponseHeader:
    correlation_id = correlation_id_of(frame)
    position = INT32.size
    try:
        if ALL_APIS[api_key].response_header_version(version) == 1:
            position = skip_tagged_fields(frame, position)
    except UNREADABLE as problem:
        raise MalformedResponse(f"response header: {problem}") from None
    return ResponseHeader(correlation_id, position)
