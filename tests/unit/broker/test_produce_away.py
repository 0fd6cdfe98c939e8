"""Produce requests whose batches are checked by a worker, from the client's side."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from barnabas.base.uuid import ZERO_UUID
from barnabas.records.batch import Codec
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.framing import parse_response_header, request_start
from barnabas.wire.produce_request import ProducePartition, ProduceRequest, ProduceTopic, encode_produce_request
from barnabas.wire.produce_response import ProducePartitionReply, decode_produce_response
from tests.support.bombs import hollow, zstd_bomb
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.network import is_closed_by_peer, read_frame, run, until
from tests.support.side_by_side_produce import batch

TOPIC = "orders"
VERSION = 9
LONG = hollow(Codec.SNAPPY, 300_000)
"""One record, and a tenth of a second of looking for it."""


class Producer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    def send(self, *contents: bytes, acks: int = 1) -> None:
        """All of them for partition 0, a request for each."""
        frames = []
        for content in contents:
            topics = [ProduceTopic(TOPIC, ZERO_UUID, [ProducePartition(0, content)])]
            body = b"".join(encode_produce_request(VERSION, ProduceRequest(None, acks, 30_000, topics)))
            frames.append(request_start(ApiKey.PRODUCE, VERSION, 1, "test", len(body)) + body)
        self._writer.write(b"".join(frames))

    async def answer(self) -> ProducePartitionReply:
        frame = memoryview(await read_frame(self.reader))
        body = frame[parse_response_header(ApiKey.PRODUCE, VERSION, frame).body_position :]
        return decode_produce_response(VERSION, body).topics[0].partitions[0]

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def producing(broker: ServedBroker) -> AsyncIterator[Producer]:
    await broker.create(TOPIC)
    listener = broker.broker.listeners[0]
    producer = Producer(*await asyncio.open_connection("127.0.0.1", listener.port))
    try:
        yield producer
    finally:
        await producer.close()


def test_answers_come_in_the_order_of_the_requests_and_offsets_too(tmp_path: Path) -> None:
    async def scene() -> None:
        async with served_broker(tmp_path) as broker, producing(broker) as producer:
            producer.send(batch(), LONG, batch(2), batch(3, codec=Codec.ZSTD), LONG, batch())
            answers = [await producer.answer() for _ in range(6)]
            assert [one.base_offset for one in answers] == [0, 1, 2, 4, 7, 8]

    run(scene())


def test_bomb_without_acks_closes_the_connection(tmp_path: Path) -> None:
    async def scene() -> None:
        async with served_broker(tmp_path) as broker, producing(broker) as producer:
            producer.send(LONG, batch(), acks=0)
            await until(lambda: broker.partition(TOPIC).end_offset == 2)
            producer.send(zstd_bomb(1024), acks=0)
            assert await is_closed_by_peer(producer.reader)

    run(scene())


def test_topic_deleted_while_its_batch_is_away_refuses_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with served_broker(tmp_path) as broker, producing(broker) as producer:
            partition = broker.partition(TOPIC)
            producer.send(LONG, batch())
            await until(lambda: partition.is_admitting)
            asked = [{"name": TOPIC, "topic_id": None}]
            await broker.ask(ApiKey.DELETE_TOPICS, 6, topics=asked, timeout_ms=5000)
            codes = [(await producer.answer()).error_code for _ in range(2)]
            assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2

    run(scene())


def test_broker_that_stops_answers_for_batches_that_are_away(tmp_path: Path) -> None:
    async def scene() -> None:
        async with served_broker(tmp_path) as broker, producing(broker) as producer:
            partition = broker.partition(TOPIC)
            producer.send(LONG, batch())
            await until(lambda: partition.is_admitting)
            await broker.broker.__aexit__(None, None, None)
            codes = [(await producer.answer()).error_code for _ in range(2)]
            assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2

    run(scene())
