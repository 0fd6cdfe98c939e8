"""A client that sends one request after the other on a socket, and reads answers, or the end of the connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from barnabas.records.batch import Codec
from barnabas.records.builder import BatchBuilder
from barnabas.wire.apis import ApiKey
from barnabas.wire.framing import parse_response_header, request_start
from barnabas.wire.messages import decode_response, write_request
from tests.support.broker_parts import ServedBroker
from tests.support.network import read_frame

METADATA = (ApiKey.METADATA, 1, {"topics": []})


def frame_of(api_key: ApiKey, version: int, values: dict[str, Any]) -> bytes:
    body = write_request(api_key, version, values)
    return request_start(api_key, version, 1, "test", len(body)) + body


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, api_key: ApiKey, version: int, values: dict[str, Any]) -> None:
        self.writer.write(frame_of(api_key, version, values))

    async def ask(self, api_key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        self.send(api_key, version, values)
        reply = memoryview(await read_frame(self.reader))
        return decode_response(api_key, version, reply[parse_response_header(api_key, version, reply).body_position :])

    async def is_served(self) -> bool:
        self.send(*METADATA)
        return bool(await read_frame(self.reader))


@asynccontextmanager
async def connected(served: ServedBroker) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.broker.listeners[0].port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def produce_of(topic: str, value: bytes = b"value", codec: Codec = Codec.NONE) -> tuple[ApiKey, int, dict[str, Any]]:
    batch = BatchBuilder(codec=codec)
    batch.append(1_700_000_000_000, None, value)
    partition = {"index": 0, "records": bytes(batch.build())}
    asked = {"transactional_id": None, "acks": -1, "timeout_ms": 1000}
    return ApiKey.PRODUCE, 12, {**asked, "topic_data": [{"name": topic, "partition_data": [partition]}]}


def fetch_of(topic: str, offset: int = 0, wait_ms: int = 0) -> tuple[ApiKey, int, dict[str, Any]]:
    partition = {"partition": 0, "fetch_offset": offset, "log_start_offset": -1, "partition_max_bytes": 1 << 20}
    partition |= {"current_leader_epoch": -1, "last_fetched_epoch": -1}
    asked: dict[str, Any] = {"replica_id": -1, "max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20}
    asked |= {"isolation_level": 0, "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    return ApiKey.FETCH, 12, {**asked, "topics": [{"topic": topic, "partitions": [partition]}]}


def join_of(group_id: str) -> tuple[ApiKey, int, dict[str, Any]]:
    asked = {"group_id": group_id, "session_timeout_ms": 6000, "rebalance_timeout_ms": 6000, "member_id": ""}
    return (
        ApiKey.JOIN_GROUP,
        2,
        {
            **asked,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    )
