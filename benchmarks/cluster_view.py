"""What one broker of a measured cluster says, asked with raw sockets: the brokers, who leads, who is in sync."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from barnabas.wire.apis import ApiKey
from barnabas.wire.framing import parse_response_header, request_start
from barnabas.wire.messages import Message, decode_response, write_request
from benchmarks.broker_load import CORRELATION_ID, HOST, LoadFailed, read_reply

_METADATA_VERSION: Final = 12
_ANSWER_SECONDS_MAX: Final = 15


@dataclass(frozen=True, slots=True)
class PartitionView:
    leader: int
    """-1 for none."""
    in_sync: frozenset[int]


def ask(port: int, api_key: ApiKey, version: int, values: Mapping[str, Any]) -> Message | None:
    """None when there is no answer."""
    body = write_request(api_key, version, values)
    try:
        with socket.create_connection((HOST, port), timeout=_ANSWER_SECONDS_MAX) as connection:
            connection.sendall(request_start(api_key, version, CORRELATION_ID, "benchmark", len(body)) + body)
            reply = read_reply(connection)
    except (OSError, LoadFailed):
        return None
    header = parse_response_header(api_key, version, reply)
    return decode_response(api_key, version, reply[header.body_position :])


def metadata(port: int, *topics: str) -> Message | None:
    """With these topics alone; it creates none."""
    asked = {
        "topics": [{"topic_id": UUID(int=0), "name": name} for name in topics],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    return ask(port, ApiKey.METADATA, _METADATA_VERSION, asked)


def partitions_of(port: int, topic: str) -> dict[int, PartitionView]:
    """By index; none when the broker does not answer, or does not know the topic."""
    answer = metadata(port, topic)
    if answer is None:
        return {}
    found = answer.topics[0].partitions
    return {one.partition_index: PartitionView(one.leader_id, frozenset(one.isr_nodes)) for one in found}
