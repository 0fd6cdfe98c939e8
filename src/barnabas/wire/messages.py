"""Every message but Produce and Fetch: decoded and encoded through kio, which has Kafka's schemas as classes.

`kio.schema.metadata.v12.MetadataRequest` is one class for one version, with the fields that the version has. Two
shapes differ from Kafka's JSON: durations are `timedelta` (`timeout`, not `timeout_ms`), and a zero UUID is None. A
handler gets a request as a view instead (`decode_view_in_steps`), which is one class for all versions
(`request_views`).

kio's messages are imported per API and version on first use, since all of them take most of a second. What `reader`
cannot read is `MalformedRequest` or `MalformedResponse`. Bytes after the message are ignored, as Kafka ignores them.
A broker reads requests and writes responses in steps (`..._in_steps`), because both may be long and others wait.

`write_response` and `write_request` encode plain values, for whichever version the peer speaks: the way for handlers.
`encode_response` and `encode_request` encode an instance of kio's class, through kio's writer, and are slower.
"""

import barnabas.wire.kio_without_hypothesis  # noqa: F401 # before kio
from barnabas.base.buffers import Buffer

# isort: split
import re
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Any, Final, TypeAlias, TypeVar

from kio.serial import entity_writer

from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError, MalformedRequest, MalformedResponse
from barnabas.wire.image_messages import FETCH_IMAGE_REQUESTS, FETCH_IMAGE_RESPONSES
from barnabas.wire.log_directory_messages import with_strays
from barnabas.wire.log_info_messages import LOG_INFO_REQUESTS, LOG_INFO_RESPONSES
from barnabas.wire.offline_replica_messages import OFFLINE_REPLICA_REQUESTS, OFFLINE_REPLICA_RESPONSES
from barnabas.wire.primitives import TEXT_BYTES_MAX, UNREADABLE
from barnabas.wire.probe_messages import PROBE_REQUESTS, PROBE_RESPONSES
from barnabas.wire.reader import Allowance, message_reader, message_steps
from barnabas.wire.steps import Steps, finish
from barnabas.wire.values import EncodedMessage, Values, write_values, write_values_in_steps

Message: TypeAlias = Any
"""An instance of one of kio's generated classes: which one depends on API and version, so its fields are not typed."""
Schema: TypeAlias = Any
"""One of those classes."""

REQUEST_ELEMENTS_MAX: Final = 50_000
"""Of all arrays of a request together. No client sends this many; without a bound the few bytes that each element takes
on the wire would become gigabytes of objects."""

_RESPONSE_ELEMENTS_MAX: Final = 2**31
"""A broker believes another one."""

_View = TypeVar("_View")

_OUR_OWN: Final[dict[tuple[int, str], tuple[Schema, ...]]] = {
    (ApiKey.FETCH_IMAGE, "Request"): FETCH_IMAGE_REQUESTS,
    (ApiKey.FETCH_IMAGE, "Response"): FETCH_IMAGE_RESPONSES,
    (ApiKey.REPLICA_LOG_INFO, "Request"): LOG_INFO_REQUESTS,
    (ApiKey.REPLICA_LOG_INFO, "Response"): LOG_INFO_RESPONSES,
    (ApiKey.PROBE_BROKER, "Request"): PROBE_REQUESTS,
    (ApiKey.PROBE_BROKER, "Response"): PROBE_RESPONSES,
    (ApiKey.REPORT_OFFLINE_REPLICAS, "Request"): OFFLINE_REPLICA_REQUESTS,
    (ApiKey.REPORT_OFFLINE_REPLICAS, "Response"): OFFLINE_REPLICA_RESPONSES,
}
"""Messages that kio does not have, by version."""

_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


def decode_request(api_key: int, version: int, body: Buffer) -> Message:
    """As an instance of kio's class."""
    return finish(_decode_request(api_key, version, body, None))


def decode_view(api_key: int, version: int, body: Buffer, view: type[_View]) -> _View:
    """The request as a handler sees it, all at once."""
    return finish(decode_view_in_steps(api_key, version, body, view))


def decode_view_in_steps(api_key: int, version: int, body: Buffer, view: type[_View]) -> Steps[_View]:
    """The request as a handler sees it at last, with a pause after every few elements of it."""
    return _decode_request(api_key, version, body, view)


def _decode_request(api_key: int, version: int, body: Buffer, view: Any) -> Steps[Any]:
    schema = request_schema(api_key, version)
    try:
        message, _ = yield from message_steps(schema, view)(body, 0, Allowance(REQUEST_ELEMENTS_MAX))
    except (*UNREADABLE, OverflowError) as problem:
        raise MalformedRequest(f"{schema.__name__} version {version}: {problem}") from None
    return message


def decode_response_in_steps(api_key: int, version: int, body: Buffer) -> Steps[Message]:
    """The response at last, with a pause after every few elements of it: for one that may be long."""
    schema = response_schema(api_key, version)
    try:
        message, _ = yield from message_steps(schema, None)(body, 0, Allowance(_RESPONSE_ELEMENTS_MAX))
    except (*UNREADABLE, OverflowError) as problem:
        raise MalformedResponse(f"{schema.__name__} version {version}: {problem}") from None
    return message


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


def write_response_in_steps(api_key: int, version: int, values: Values) -> Steps[EncodedMessage]:
    """The same at last, with a pause after every element of it."""
    return write_values_in_steps(response_schema(api_key, version), values)


def write_request(api_key: int, version: int, values: Values) -> bytes:
    """The encoding of a request given by plain values, in the form that `values` describes.

    KafkaError when one of its texts is longer than the protocol allows: cut, it would mean something else.
    """
    encoded = finish(write_values_in_steps(request_schema(api_key, version), values))
    if encoded.has_cut_text:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{ALL_APIS[api_key].name}: a text of more than {TEXT_BYTES_MAX} bytes cannot be sent",
        )
    return bytes(encoded)


@cache
def request_schema(api_key: int, version: int) -> Schema:
    """kio's class for the request. Its nested classes are in the same module."""
    return _schema(api_key, version, "Request")


@cache
def response_schema(api_key: int, version: int) -> Schema:
    """kio's class for the response. Its nested classes are in the same module."""
    return _schema(api_key, version, "Response")


def _schema(api_key: int, version: int, kind: str) -> Schema:
    api = ALL_APIS[api_key]
    assert api.serves(version), f"{api.name} version {version} is not served"
    if (api_key, kind) in _OUR_OWN:
        return _OUR_OWN[api_key, kind][version]
    package = _CAPITAL.sub("_", api.name).lower()
    schema = getattr(import_module(f"kio.schema.{package}.v{version}"), api.name + kind)
    return with_strays(schema) if (api_key, kind) == (ApiKey.DESCRIBE_LOG_DIRS, "Response") else schema


def _encode(message: Message) -> bytes:
    buffer = BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()
