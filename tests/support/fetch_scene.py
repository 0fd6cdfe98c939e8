"""A topic, somebody who writes to it and somebody who fetches, over real connections to a broker in the test's loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.base.uuid import ZERO_UUID
from barnabas.replication.partition import Partition
from barnabas.wire.apis import ApiKey
from barnabas.wire.fetch import TOPIC_ID_FROM
from barnabas.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from barnabas.wire.fetch_response import FetchPartitionReply, FetchResponse, decode_fetch_response
from barnabas.wire.framing import parse_response_header, request_start
from barnabas.wire.primitives import INT32
from barnabas.wire.produce_request import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    encode_produce_request,
)
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.kernels import build_batch

TOPIC = "orders"
PRODUCE_VERSION = 9
LONG_MS = 60_000


class Peer:
    """A connection that speaks one API in one version."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: ApiKey, version: int) -> None:
        self.stream, self._writer = reader, writer
        self._key, self.version = key, version

    def send(self, *bodies: bytes) -> None:
        """All of them at once."""
        frames = [request_start(self._key, self.version, 1, "test", len(body)) + body for body in bodies]
        self._writer.write(b"".join(frames))

    async def receive(self) -> memoryview:
        """The body of the next answer."""
        (length,) = INT32.unpack(await self.stream.readexactly(INT32.size))
        reply = memoryview(await self.stream.readexactly(length))
        return reply[parse_response_header(self._key, self.version, reply).body_position :]

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def _produce(batch: bytes) -> bytes:
    request = ProduceRequest(None, 1, 30_000, [ProduceTopic(TOPIC, ZERO_UUID, [ProducePartition(0, batch)])])
    return b"".join(encode_produce_request(PRODUCE_VERSION, request))


class Reader(Peer):
    """Fetches partition 0 of the topic."""

    topic_id: UUID

    def ask(
        self, offset: int, *, wait_ms: int = LONG_MS, bytes_min: int = 1, leader_epoch: int = -1, **request: Any
    ) -> None:
        has_id = self.version >= TOPIC_ID_FROM
        wanted = FetchPartition(0, leader_epoch, offset, -1, -1, 1 << 20)
        topic = FetchTopic("" if has_id else TOPIC, self.topic_id if has_id else ZERO_UUID, [wanted])
        asked = FetchRequest(wait_ms, bytes_min, 1 << 20, topics=[topic], **request)
        self.send(encode_fetch_request(self.version, asked))

    async def answer(self) -> FetchResponse:
        return decode_fetch_response(self.version, await self.receive())

    async def partition(self) -> FetchPartitionReply:
        ((partition,),) = [topic.partitions for topic in (await self.answer()).topics]
        return partition


class Scene(NamedTuple):
    """A topic with one record, somebody who can write to it, and somebody who reads."""

    broker: ServedBroker
    partition: Partition
    producer: Peer
    reader: Reader

    async def append(self, *sizes: int) -> None:
        """Batches of so many records, all in one go."""
        self.producer.send(*(_produce(build_batch(size)) for size in sizes))
        for _ in sizes:
            await self.producer.receive()

    async def until_waiting(self) -> None:
        while not self.partition.watchers:  # noqa: ASYNC110 - nobody else wants to know when a fetch waits
            await asyncio.sleep(0)


@asynccontextmanager
async def scene_of(directory: Path, version: int) -> AsyncIterator[Scene]:
    async with served_broker(directory) as broker:
        await broker.create(TOPIC)
        host, port = broker.broker.bootstrap.split(":")
        producer = Peer(*await asyncio.open_connection(host, port), ApiKey.PRODUCE, PRODUCE_VERSION)
        reader = Reader(*await asyncio.open_connection(host, port), ApiKey.FETCH, version)
        scene = Scene(broker, broker.partition(TOPIC), producer, reader)
        reader.topic_id = scene.partition.topic_id
        await scene.append(1)
        yield scene
        await reader.close()
        await producer.close()
