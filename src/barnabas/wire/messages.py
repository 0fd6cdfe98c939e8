"""Every message but Produce and Fetch: decoded and encoded through kio, which has Kafka's schemas as classes.

`kio.schema.metadata.v12.MetadataRequest` is one class for one version, so a handler sees only the fields that the
version has. Two shapes differ from Kafka's JSON: durations are `timedelta` (`timeout`, not `timeout_ms`), and a zero
UUID is None.

kio's messages are imported per API and version on first use, since all of them take most of a second. What `reader`
cannot read is `MalformedRequest` or `MalformedResponse`. Bytes after the message are ignored, as Kafka ignores them.

`write_response` and `write_request` encode plain values, for whichever version the peer speaks: the way for handlers.
`encode_response` and `encode_request` encode an instance of kio's class, through kio's writer, and are slower.
"""

import barnabas.wire.kio_without_hypothesis  # noqa: F401 # before kio

# isort: split
import re
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Any, Final, TypeAlias

from kio.serial import entity_writer

from barnabas.wire.apis import APIS
from barnabas.wire.errors import MalformedRequest, MalformedResponse
from barnabas.wire.primitives import UNREADABLE, Buffer
from barnabas.wire.reader import message_reader
from barnabas.wire.values import Values, write_values

Message: TypeAlias = Any
"""An instance of one of kio's generated classes: which one depends on API and version, so its fields are not typed."""
Schema: TypeAlias = Any
"""One of those classes."""

_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


def decode_request(api_key: int, version: int, body: Buffer) -> Message:
    schema = request_schema(api_key, version)
    try:
        return message_reader(schema)(body, 0)[0]
    except (*UNREADABLE, OverflowError) as problem:
        raise MalformedRequest(f"{schema.__name__} version {version}: {problem}") from None


def decode_response(api_key: int, version: int, body: Buffer) -> Message:
    schema = response_schema(api_key, version)
    try:
        return message_reader(schema)(body, 0)[0]
    except (*UNREADABLE, OverflowError) as problem:
        raise MalformedResponse(f"{schema.__name__} version {version}: {problem}") from None


def encode_request(request: Message) -> bytes:
    return _encode(request)


def encode_response(response: Message) -> bytes:
    return _encode(response)


def write_response(api_key: int, version: int, values: Values) -> bytes:
    """The encoding of a response given by plain values, in the form that `values` describes."""
    return write_values(response_schema(api_key, version), values)


def write_request(api_key: int, version: int, values: Values) -> bytes:
    """The encoding of a request given by plain values, in the form that `values` describes."""
    return write_values(request_schema(api_key, version), values)


@cache
def request_schema(api_key: int, version: int) -> Schema:
    """kio's class for the request. Its nested classes are in the same module."""
    return _schema(api_key, version, "Request")


@cache
def response_schema(api_key: int, version: int) -> Schema:
    """kio's class for the response. Its nested classes are in the same module."""
    return _schema(api_key, version, "Response")


def _schema(api_key: int, version: int, kind: str) -> Schema:
    api = APIS[api_key]
    assert api.serves(version), f"{api.name} version {version} is not served"
    package = _CAPITAL.sub("_", api.name).lower()
    return getattr(import_module(f"kio.schema.{package}.v{version}"), api.name + kind)


def _encode(message: Message) -> bytes:
    buffer = BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()
