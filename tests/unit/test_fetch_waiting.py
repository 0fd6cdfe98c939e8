"""A fetch that waits at the end of a log gets what is written next: from memory when that is little, or the file."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.base.uuid import ZERO_UUID
from barnabas.records.batch import split_batches
from barnabas.wire.apis import ApiKey
from barnabas.wire.fetch_request import (
    TOPIC_ID_FROM,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
)
from barnabas.wire.fetch_response import FetchPartitionReply, decode_fetch_response
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
from tests.support.network import run

TOPIC = "orders"
PRODUCE_VERSION = 9
FETCH_VERSIONS = (4, 11, 12, 13, 17)
LONG_MS = 60_000


class Peer:
    """A connection that speaks one API in one version."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: ApiKey, version: int) -> None:
        self._reader, self._writer = reader, writer
        self._key, self._version = key, version

    def send(self, *bodies: bytes) -> None:
        """All of them at once."""
        frames = [request_start(self._key, self._version, 1, "test", len(body)) + body for body in bodies]
        self._writer.write(b"".join(frames))

    async def receive(self) -> memoryview:
        """The body of the next answer."""
        (length,) = INT32.unpack(await self._reader.readexactly(INT32.size))
        reply = memoryview(await self._reader.readexactly(length))
        return reply[parse_response_header(self._key, self._version, reply).body_position :]

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def connect(broker: ServedBroker, key: ApiKey, version: int) -> Peer:
    return Peer(*await asyncio.open_connection(*broker.broker.bootstrap.split(":")), key, version)


def _produce(batch: bytes) -> bytes:
    request = ProduceRequest(None, 1, 30_000, [ProduceTopic(TOPIC, ZERO_UUID, [ProducePartition(0, batch)])])
    return b"".join(encode_produce_request(PRODUCE_VERSION, request))


def _fetch(topic_id: UUID, version: int, isolation_level: int, wait_ms: int) -> bytes:
    has_id = version >= TOPIC_ID_FROM
    partition = FetchPartition(0, -1, 1, -1, -1, 1 << 20)
    wanted = FetchTopic("" if has_id else TOPIC, topic_id if has_id else ZERO_UUID, [partition])
    return encode_fetch_request(version, FetchRequest(wait_ms, 1, 1 << 20, isolation_level, topics=[wanted]))


def _answered(version: int, body: memoryview) -> FetchPartitionReply:
    ((partition,),) = [topic.partitions for topic in decode_fetch_response(version, body).topics]
    return partition


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("sizes", [[1], [3, 2], [2_000]], ids=["one batch", "two batches of a tick", "large"])
def test_waiting_fetch_is_answered_with_the_bytes_of_the_log(
    tmp_path: Path, version: int, isolation_level: int, sizes: list[int]
) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create(TOPIC)
            partition = broker.partition(TOPIC)
            producer = await connect(broker, ApiKey.PRODUCE, PRODUCE_VERSION)
            consumer = await connect(broker, ApiKey.FETCH, version)
            producer.send(_produce(build_batch(1)))
            await producer.receive()
            consumer.send(_fetch(partition.topic_id, version, isolation_level, LONG_MS))
            while not partition.watchers:  # noqa: ASYNC110 - nobody else wants to know when a fetch waits
                await asyncio.sleep(0)
            producer.send(*(_produce(build_batch(size)) for size in sizes))
            news = _answered(version, await consumer.receive())
            for _ in sizes:
                await producer.receive()
            consumer.send(_fetch(partition.topic_id, version, isolation_level, 0))
            again = _answered(version, await consumer.receive())
            assert news.error_code == again.error_code == 0
            assert news.aborted_transactions == again.aborted_transactions
            assert news.records
            assert bytes(again.records or b"").startswith(bytes(news.records))
            first, _ = next(iter(split_batches(news.records)))
            assert (first.base_offset, first.count) == (1, sizes[0])
            await consumer.close()
            await producer.close()

    run(scenario())
