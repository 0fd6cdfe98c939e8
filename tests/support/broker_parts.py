"""A whole broker in the test's own event loop, asked through its handlers: what goes in and comes out is encoded.

```python
async with served_broker(tmp_path) as broker:
    answer = await broker.ask(ApiKey.METADATA, 12, topics=None)
```
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from barnabas.base.buffers import BUFFER_TYPES
from barnabas.base.clock import Clock, SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.broker.app import Broker
from barnabas.broker.authorizer import AllowAll, Authorizer
from barnabas.broker.caller import Caller
from barnabas.broker.parts import BrokerParts
from barnabas.broker.request import Request
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.table import MemoryTable
from barnabas.net.replies import ReplySlot
from barnabas.records.builder import BatchBuilder
from barnabas.replication.partition import Partition
from barnabas.storage.log.log import Log
from barnabas.wire.apis import ApiKey
from barnabas.wire.codecs import Codecs, default_codecs
from barnabas.wire.framing import LENGTH_BYTES, parse_response_header, request_start
from barnabas.wire.messages import decode_response, write_request

NODE_ID = 1
LISTENER = "PLAINTEXT"


class ServedBroker:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.client_id = "test"

    async def ask(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        """The answer, as a client of this version reads it."""
        return await self.ask_bytes(key, version, write_request(key, version, values))

    async def ask_bytes(self, key: ApiKey, version: int, request_body: bytes) -> Any:
        """The same for what no client would write."""
        reply = await self.ask_frame(key, version, request_body)
        return decode_response(key, version, reply[parse_response_header(key, version, reply).body_position :])

    async def ask_frame(self, key: ApiKey, version: int, request_body: bytes) -> memoryview:
        """The frame of the answer, its header included. The request goes the road of every request."""
        start = request_start(key, version, 1, self.client_id, len(request_body))
        return await self.send(bytearray(start + request_body))

    def send(self, frame: bytearray) -> "asyncio.Task[memoryview]":
        """A whole frame, on a connection of its own."""
        return self.connect().send_frame(frame)

    def connect(self) -> "ServedConnection":
        return ServedConnection(self)

    async def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        answer = await self.ask(
            ApiKey.CREATE_TOPICS,
            7,
            topics=[
                new_topic(name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()})
            ],
            timeout_ms=1000,
            validate_only=False,
        )
        assert answer.topics[0].error_code.value == 0, answer

    async def find_coordinator(self, group_id: str = "g") -> None:
        """Makes the topic of the groups, if it is not there."""
        await self.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group_id])

    async def commit(self, offset: int, metadata: str = "") -> ErrorCode:
        """Of group "g", for the first partition of "orders"."""
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }
        answer = await self.ask(
            ApiKey.OFFSET_COMMIT,
            8,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": "orders", "partitions": [partition]}],
        )
        return answer.topics[0].partitions[0].error_code  # type: ignore[no-any-return]

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.broker.replicas.get(topic, index)
        assert found is not None
        return found

    def log(self, topic: str, index: int = 0) -> Log:
        """What a partition stores, for what handlers need not know."""
        found = self.broker.logs.get(TopicPartition(topic, index))
        assert found is not None
        return found

    def append(self, topic: str, timestamps: Sequence[int], index: int = 0, **builder: Any) -> None:
        """One batch, a record for each timestamp, committed."""
        batch = BatchBuilder(**builder)
        for timestamp in timestamps:
            batch.append(timestamp, b"key", b"value")
        partition = self.partition(topic, index)
        partition.append(batch.build())
        self.broker.tick.write()
        partition.commit(partition.end_offset)  # also where a flush is still under way


class ServedConnection:
    """One connection, without a network: requests in, answers out."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker
        self._client = broker.broker.dispatcher.connect(_Peer())

    @property
    def caller(self) -> Caller:
        return self._client.caller

    def send(self, key: ApiKey, version: int, values: dict[str, Any]) -> "asyncio.Task[Any]":
        """The answer comes later, as a client of this version reads it."""
        body = write_request(key, version, values)
        frame = self.send_frame(bytearray(request_start(key, version, 1, self._broker.client_id, len(body)) + body))

        async def answer() -> Any:
            reply = await frame
            return decode_response(key, version, reply[parse_response_header(key, version, reply).body_position :])

        return asyncio.ensure_future(answer())

    def send_frame(self, frame: bytearray) -> "asyncio.Task[memoryview]":
        answered = _Answered()
        self._client.on_request(Request(answered, len(frame)), memoryview(frame)[LENGTH_BYTES:])

        async def answer() -> memoryview:
            reply = await answered.reply
            whole = reply if isinstance(reply, bytes) else b"".join(_bytes_of(piece) for piece in reply)
            return memoryview(whole)[LENGTH_BYTES:]

        return asyncio.ensure_future(answer())


class _Peer:
    """A client, as far as a dispatcher sees it."""

    listener_name = LISTENER
    peer_host = "127.0.0.1"


class _Answered:
    """A connection with one request, as the request sees it."""

    is_closed = False

    def __init__(self) -> None:
        self.reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def slot_completed(self, slot: ReplySlot) -> None:
        self.reply.set_result(slot.reply)

    def request_failed(self, error: BarnabasError) -> None:
        self.reply.set_exception(error)


def _bytes_of(piece: Any) -> bytes:
    if isinstance(piece, BUFFER_TYPES):
        return bytes(piece)
    data = piece.file.read_at(piece.length, piece.position)
    piece.release()
    return bytes(data)


def new_topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | dict[str, str] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [
            {"partition_index": index, "broker_ids": brokers} for index, brokers in (assignments or {}).items()
        ],
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }


@asynccontextmanager
async def served_broker(
    directory: Path,
    *,
    table: MemoryTable | None = None,
    has_metadata_file: bool = False,
    clock: Clock | None = None,
    codecs: Codecs | None = None,
    authorizer: Authorizer | None = None,
    **settings: str,
) -> AsyncIterator[ServedBroker]:
    """Settings have underscores for dots. With a table given, or a file, a second start finds what the first left."""
    texts = {
        "node.id": str(NODE_ID),
        "listeners": f"{LISTENER}://127.0.0.1:0",
        "log.dirs": str(directory),
        **{name.replace("_", "."): text for name, text in settings.items()},
    }
    if table is None and not has_metadata_file:
        table = MemoryTable()
    parts = BrokerParts(
        LocalFileSystem(),
        clock or SystemClock(),
        Random(7),
        metadata_table=table,
        codecs=codecs or default_codecs(),
        authorizer=authorizer or AllowAll(),
    )
    async with Broker(BrokerSettings(texts), parts) as broker:
        yield ServedBroker(broker)
