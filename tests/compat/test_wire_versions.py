"""Versions, headers, error codes and the treatment of odd bytes against Apache Kafka's own."""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from barnabas.wire.api_versions import advertised_apis, unsupported_version_body
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedRequest
from barnabas.wire.framing import parse_request_header, request_start
from barnabas.wire.messages import decode_request, decode_response, write_request
from barnabas.wire.produce import decode_produce
from tests.support.kafka import JAVA_SOURCES, KafkaNode, KafkaUnavailable, java_command, run_command

pytestmark = pytest.mark.kafka

CORRELATION_ID = 7


class KafkaApi(NamedTuple):
    name: str
    version_min: int
    version_max: int
    headers: list[tuple[int, int]]


@pytest.fixture(scope="module")
def tables() -> list[list[str]]:
    try:
        status, output = run_command(java_command(str(JAVA_SOURCES / "WireTables.java")))
    except KafkaUnavailable as missing:
        pytest.skip(str(missing))
    assert status == 0, output
    return [line.split("\t") for line in output.splitlines()]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    try:
        with KafkaNode(tmp_path_factory.mktemp("kafka")) as started:
            yield started
    except KafkaUnavailable as missing:
        pytest.skip(str(missing))


def test_error_codes_are_kafkas(tables: list[list[str]]) -> None:
    kafkas = {(row[1], int(row[2]), row[3] == "true") for row in tables if row[0] == "error"}
    assert {(code.name, code.value, code.is_retriable) for code in ErrorCode} == kafkas


def test_api_versions_and_headers_are_kafkas(tables: list[list[str]]) -> None:
    kafkas = {}
    for kind, *row in tables:
        if kind == "api":
            headers = [(int(pair.split(",")[0]), int(pair.split(",")[1])) for pair in row[4:]]
            kafkas[int(row[0])] = KafkaApi(row[1], int(row[2]), int(row[3]), headers)
    for key, api in APIS.items():
        headers = [
            (api.request_header_version(version), api.response_header_version(version))
            for version in range(api.version_min, api.version_max + 1)
        ]
        assert KafkaApi(api.name, api.version_min, api.version_max, headers) == kafkas[key]


def test_advertised_ranges_are_those_a_real_broker_advertises(node: KafkaNode) -> None:
    body = _ask(node, ApiKey.API_VERSIONS, 0, b"")
    assert body is not None
    advertised = {
        entry.api_key: (entry.min_version, entry.max_version)
        for entry in decode_response(ApiKey.API_VERSIONS, 0, memoryview(body)).api_keys
    }
    for api in advertised_apis():
        assert (api.advertised_min, api.version_max) == advertised[api.key]


def test_unknown_version_of_api_versions_is_answered_as_by_kafka(node: KafkaNode) -> None:
    assert _ask(node, ApiKey.API_VERSIONS, 99, b"") == unsupported_version_body()


ALL_TOPICS = b"\xff\xff\xff\xff"
EMPTY_PRODUCE = struct.pack(">hhii", -1, 1, 1000, 0)


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        pytest.param(3, 1, ALL_TOPICS, id="well-formed"),
        pytest.param(3, 1, ALL_TOPICS + b"more", id="bytes after the message"),
        pytest.param(3, 1, b"\xff\xff\xff\xfe", id="null by another negative length"),
        pytest.param(3, 1, b"\x7f\xff\xff\xff", id="huge array"),
        pytest.param(3, 1, b"", id="nothing"),
        pytest.param(3, 12, b"\0\2\0\0", id="boolean two"),
        pytest.param(3, 12, b"\0\1\0\1\x63\3abc", id="unknown tagged field"),
        pytest.param(3, 12, b"\0\1\0\1\x63\x7fabc", id="unknown tagged field, cut off"),
        pytest.param(18, 4, b"\2a\2b\0", id="compact strings"),
        pytest.param(18, 4, b"\0\2b\0", id="null for a string that must be there"),
        pytest.param(18, 4, b"\2\xff\2b\0", id="text that is not UTF-8"),
        pytest.param(18, 4, b"\xff\xff\xff\xff\xff\1", id="varint of six bytes"),
        pytest.param(18, 4, b"\xff\xff\xff\xff\x0f\2b\0", id="varint beyond int32"),
        pytest.param(0, 3, EMPTY_PRODUCE, id="produce"),
        pytest.param(0, 3, EMPTY_PRODUCE + b"more", id="produce with bytes after it"),
        pytest.param(0, 3, EMPTY_PRODUCE[:-4] + b"\xff\xff\xff\xff", id="produce with null for its topics"),
        pytest.param(0, 2, EMPTY_PRODUCE[2:], id="produce before version 3"),
        pytest.param(22, 6, bytes(19), id="a version that is not stable"),
        pytest.param(3, 99, b"", id="a version to come"),
        pytest.param(4, 0, b"", id="an API that clients do not have"),
        pytest.param(999, 0, b"", id="an API that nobody has"),
    ],
)
def test_odd_request_is_accepted_or_refused_as_by_kafka(
    node: KafkaNode, api_key: int, version: int, body: bytes
) -> None:
    is_flexible = api_key not in APIS or APIS[api_key].is_flexible(version)
    header = struct.pack(">hhihs", api_key, version, CORRELATION_ID, 1, b"c") + (b"\0" if is_flexible else b"")
    frame = memoryview(header + body)
    try:
        parsed = parse_request_header(frame)
        if api_key == ApiKey.PRODUCE:
            decode_produce(version, frame[parsed.body_position :])
        else:
            decode_request(api_key, version, frame[parsed.body_position :])
        is_accepted = True
    except MalformedRequest:
        is_accepted = False
    answer = _exchange(node, struct.pack(">i", len(frame)) + frame)
    assert (answer is not None) is is_accepted


def test_metadata_request_of_every_version_is_answered_by_kafka(node: KafkaNode) -> None:
    for version in range(APIS[ApiKey.METADATA].version_min, APIS[ApiKey.METADATA].version_max + 1):
        request = write_request(ApiKey.METADATA, version, {"topics": [], "allow_auto_topic_creation": False})
        body = _ask(node, ApiKey.METADATA, version, request)
        assert body is not None
        assert len(decode_response(ApiKey.METADATA, version, memoryview(body)).brokers) == 1


def _ask(node: KafkaNode, api_key: int, version: int, body: bytes) -> bytes | None:
    """The body of the answer, or None when the connection was closed."""
    answer = _exchange(node, request_start(api_key, version, CORRELATION_ID, "test", len(body)) + body)
    if answer is None:
        return None
    header_bytes = 4 + APIS[api_key].response_header_version(version)
    assert answer[:4] == struct.pack(">i", CORRELATION_ID)
    return answer[header_bytes:]


def _exchange(node: KafkaNode, request: bytes) -> bytes | None:
    host, port = node.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as stream:
        connection.sendall(request)
        try:
            prefix = stream.read(4)
        except ConnectionResetError:
            return None
        return stream.read(struct.unpack(">i", prefix)[0]) if prefix else None
