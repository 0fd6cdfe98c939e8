"""A broker with two log directories, the first of which fails, and a client that knows what may be true then.

The client asks over sockets, one request after the other. It keeps what was acknowledged, and checks each answer: the
healthy directory serves always, and nothing of the other one is acknowledged or read from the failed call on.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from barnabas.base.clock import ManualClock
from barnabas.base.ids import TopicPartition
from barnabas.broker.app import Broker
from barnabas.broker.parts import BrokerParts
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.table import MemoryTable
from barnabas.records.batch import split_batches
from barnabas.records.builder import BatchBuilder
from barnabas.records.reader import read_records
from barnabas.replication.workers import perform
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.framing import parse_response_header, request_start
from barnabas.wire.messages import decode_response, write_request
from tests.support.broker_parts import new_topic
from tests.support.failing_files import FailingFiles
from tests.support.side_by_side import CLOSED, plain

OFFSETS = "__consumer_offsets"
RETRIABLE = {
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
BIG = bytes(100_000)


class Client:
    """Asks one thing after the other; comes again when the connection was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._correlation_id = 0

    async def ask(self, key: ApiKey, version: int, **values: Any) -> Any:
        body = write_request(key, version, values)
        self._correlation_id += 1
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request_start(key, version, self._correlation_id, "test", len(body)) + body)
        try:
            async with asyncio.timeout(120):
                frame = memoryview(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            return CLOSED
        return plain(decode_response(key, version, frame[parse_response_header(key, version, frame).body_position :]))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class TwoDirectories:
    """The directories, the metadata, and what was acknowledged so far, over many lives of the broker."""

    def __init__(self, root: Path) -> None:
        self.failing, self.healthy = (str(root / name) for name in ("failing", "healthy"))
        self.table = MemoryTable()
        self.clock = ManualClock()
        self.values: dict[TopicPartition, dict[int, bytes]] = {}
        """What was acknowledged, by offset."""
        self.directory_of: dict[TopicPartition, str] = {}
        self._lives = 0

    def copy_to(self, root: Path) -> "TwoDirectories":
        """The same with files that somebody has copied there."""
        other = TwoDirectories(root)
        other.table = copy.deepcopy(self.table)
        other.clock = copy.copy(self.clock)
        other._lives = self._lives
        other.values = copy.deepcopy(self.values)
        other.directory_of = {
            name: other.failing if path == self.failing else other.healthy for name, path in self.directory_of.items()
        }
        return other

    @asynccontextmanager
    async def serving(self, files: FailingFiles) -> AsyncIterator["Serving"]:
        texts = {
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": f"{self.failing},{self.healthy}",
            "log.initial.task.delay.ms": "0",
            "log.retention.check.interval.ms": "1000",
            "log.flush.offset.checkpoint.interval.ms": "1000",
            "log.flush.start.offset.checkpoint.interval.ms": "1000",
            "log.cleaner.backoff.ms": "0",
            "num.recovery.threads.per.data.dir": "1",
            "network.awake.us": "0",
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": "1",
            "background.threads": "2",
        }
        self._lives += 1
        parts = BrokerParts(files, self.clock, Random(self._lives), metadata_table=self.table)
        async with Broker(BrokerSettings(texts), parts) as broker:
            client = Client(broker.listeners[0].port)
            try:
                yield Serving(self, broker, client, files)
            finally:
                client.close()


class Serving:
    """One life of the broker."""

    def __init__(self, two: TwoDirectories, broker: Broker, client: Client, files: FailingFiles) -> None:
        self.two = two
        self.broker = broker
        self.client = client
        self.files = files

    # -- asking, and checking what is answered -------------------------------------------------------------------

    def learn_places(self) -> None:
        for directory in self.broker.logs.directories:
            for name in directory.logs:
                self.two.directory_of[name] = directory.path

    def is_failing(self, name: TopicPartition) -> bool:
        return self.two.directory_of[name] == self.two.failing

    def _check(self, name: TopicPartition, code: int, had_failed: bool) -> None:
        if not self.is_failing(name):
            assert code == ErrorCode.NONE, f"{name} in the healthy directory: {ErrorCode(code).name}"
        elif had_failed:
            assert code in RETRIABLE, f"{name} in the failed directory: {ErrorCode(code).name}"

    async def create(self, topic: str, partitions: int = 2, **configs: str) -> None:
        wanted = new_topic(topic, partitions, configs={name.replace("_", "."): text for name, text in configs.items()})
        answer = await self.client.ask(ApiKey.CREATE_TOPICS, 7, topics=[wanted], timeout_ms=5000, validate_only=False)
        assert answer["topics"][0]["error_code"] == 0, answer
        self.learn_places()
        for index in range(partitions):
            self.two.directory_of.setdefault(TopicPartition(topic, index), self.two.failing)

    async def produce(self, topic: str, index: int, *values: bytes) -> None:
        await self.produce_together([TopicPartition(topic, index)], *values)

    async def produce_together(self, names: Sequence[TopicPartition], *values: bytes) -> None:
        """The same to all of them, in one request: one tick writes it."""
        builder = BatchBuilder()
        for value in values:
            builder.append(self.two.clock.now_ms(), b"key", value)
        batch = bytes(builder.build())
        had_failed = self.files.failed is not None
        topic_data = [
            {"name": name.topic, "partition_data": [{"index": name.partition, "records": batch}]} for name in names
        ]
        answer = await self.client.ask(ApiKey.PRODUCE, 11, acks=-1, timeout_ms=5000, topic_data=topic_data)
        replies = {one["name"]: one["partition_responses"][0] for one in answer["responses"]}
        for name in names:
            reply = replies[name.topic]
            self._check(name, reply["error_code"], had_failed)
            if reply["error_code"] == 0:
                stored = self.two.values.setdefault(name, {})
                assert reply["base_offset"] not in stored, "an offset is given once"
                stored.update(enumerate(values, reply["base_offset"]))
            elif self.is_failing(name):
                had_failed = True  # whatever is written after it

    async def fetch(self, topic: str, index: int, *, is_whole: bool = True) -> None:
        """Reads all there is, and compares it with what was acknowledged, unless compaction has been there."""
        name = TopicPartition(topic, index)
        had_failed = self.files.failed is not None
        expected = self.two.values.get(name, {})
        found: dict[int, bytes] = {}
        offset = min(expected, default=0)
        while offset <= max(expected, default=-1):
            partitions = [{"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
            answer = await self.client.ask(
                ApiKey.FETCH,
                12,
                max_wait_ms=0,
                min_bytes=1,
                replica_id=-1,
                topics=[{"topic": topic, "partitions": partitions}],
                forgotten_topics_data=[],
                rack_id="",
            )
            if answer == CLOSED:  # the disk failed while the answer was being sent
                assert self.is_failing(name)
                return
            reply = answer["responses"][0]["partitions"][0]
            self._check(name, reply["error_code"], had_failed)
            if reply["error_code"]:
                return
            batches = [(header, one) for header, one in split_batches(bytes(reply["records"]))]
            assert batches, f"{name} has nothing at {offset}, but {max(expected)} was acknowledged"
            for header, one in batches:
                found.update((record.offset, record.value or b"") for record in read_records(one))
                offset = header.next_offset
        assert not had_failed or not self.is_failing(name)
        if not is_whole:
            assert found.items() <= {**found, **expected}.items()
        elif self.is_failing(name):  # what was refused may be there, too
            assert expected.items() <= found.items()
        else:
            assert found == expected

    async def list_offsets(self, topic: str, index: int, timestamp: int) -> None:
        name = TopicPartition(topic, index)
        had_failed = self.files.failed is not None
        partitions = [{"partition_index": index, "timestamp": timestamp}]
        answer = await self.client.ask(
            ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=[{"name": topic, "partitions": partitions}]
        )
        self._check(name, answer["topics"][0]["partitions"][0]["error_code"], had_failed)

    async def delete_records(self, topic: str, index: int, offset: int) -> None:
        name = TopicPartition(topic, index)
        had_failed = self.files.failed is not None
        partitions = [{"partition_index": index, "offset": offset}]
        answer = await self.client.ask(
            ApiKey.DELETE_RECORDS, 2, timeout_ms=5000, topics=[{"name": topic, "partitions": partitions}]
        )
        code = answer["topics"][0]["partitions"][0]["error_code"]
        self._check(name, code, had_failed)
        if name in self.two.values and (code == 0 or self.is_failing(name)):
            kept = {at: value for at, value in self.two.values[name].items() if at >= offset}
            self.two.values[name] = kept

    async def commit(self, group: str, offset: int) -> None:
        """Finds the coordinator and commits, as a consumer without a group's protocol does."""
        had_failed = self.files.failed is not None
        answer = await self.client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])
        self.learn_places()
        name = TopicPartition(OFFSETS, self.broker.groups.coordinator.partition_of(group))
        self._check(name, answer["coordinators"][0]["error_code"], had_failed)
        await self.broker.groups.coordinator.wait_loaded()  # a consumer would ask until it is
        had_failed = self.files.failed is not None
        partitions = [
            {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
        ]
        answer = await self.client.ask(
            ApiKey.OFFSET_COMMIT,
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": "lazy", "partitions": partitions}],
        )
        self._check(name, answer["topics"][0]["partitions"][0]["error_code"], had_failed)

    async def delete_topic(self, topic: str) -> None:
        answer = await self.client.ask(
            ApiKey.DELETE_TOPICS, 6, topics=[{"name": topic, "topic_id": None}], timeout_ms=5000
        )
        assert answer["responses"][0]["error_code"] == 0, answer
        for name in [name for name in self.two.values if name.topic == topic]:
            del self.two.values[name]

    async def keep_house(self, rounds: int = 3, milliseconds: int = 5_000) -> None:
        """What the broker does about once a second."""
        for _ in range(rounds):
            self.two.clock.advance(milliseconds)
            for work in self.broker.logs.due_work(self.two.clock.now_ms()):
                await perform(work, self.broker.services.workers)

    # -- what must be true at the end ----------------------------------------------------------------------------

    async def check_metadata(self) -> None:
        """Partitions of the failed directory have no leader, the others have one."""
        answer = await self.client.ask(ApiKey.METADATA, 12, topics=None)
        for topic in answer["topics"]:
            for one in topic["partitions"]:
                name = TopicPartition(topic["name"], one["partition_index"])
                is_failing = self.two.directory_of.get(name, self.two.failing) == self.two.failing
                assert (one["leader_id"], one["offline_replicas"]) == ((-1, [1]) if is_failing else (1, [])), name

    def check_alive(self) -> None:
        assert self.broker.failure is None, f"{self.files.failed}: the broker stops"

    def check_offline(self) -> None:
        assert [one.path for one in self.broker.logs.offline_directories] == [self.two.failing], self.files.failed
