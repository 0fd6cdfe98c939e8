"""A cluster of brokers on real sockets that keeps its logs in memory, and does what a test wants to go wrong.

It speaks the real protocol and checks what a broker would check of a producer (leader, checksum, sequence), so that a
client which loses, repeats or reorders a batch fails. One loop serves all: `async with PlayedCluster(...)`.
"""

import asyncio
import contextlib
import functools
import sys
from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import UUID

from barnabas.base.ids import TopicPartition
from barnabas.records.batch import assign, read_header
from barnabas.records.builder import Record
from barnabas.records.checksum import compute_crc
from barnabas.records.reader import read_records
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.fetch import AbortedTransaction, Fetch, FetchResult, PartitionKey, decode_fetch, encode_fetched
from barnabas.wire.framing import RequestHeader, parse_request_header, response_start
from barnabas.wire.leaders import LeaderAndEpoch, NodeEndpoint
from barnabas.wire.messages import decode_request, write_response
from barnabas.wire.primitives import TopicKey
from barnabas.wire.produce import ProduceBatch, ProduceResult, decode_produce, encode_produced
from tests.support.network import read_frame


class Fault(Enum):
    CLOSE = "closes the connection instead of doing what is asked"
    DO_AND_CLOSE = "does what is asked, and closes the connection instead of saying so"
    SILENCE = "never answers"


@dataclass
class PlayedLog:
    leader_id: int
    leader_epoch: int = 0
    batches: list[bytearray] = field(default_factory=list)
    start_offset: int = 0
    aborted: list[AbortedTransaction] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    """The next sequence number of each producer id."""

    @property
    def end_offset(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    def append(self, records: bytes | memoryview) -> tuple[ErrorCode, int]:
        batch = bytearray(records)
        header = read_header(batch)
        if compute_crc(batch) != header.crc:
            return ErrorCode.CORRUPT_MESSAGE, -1
        if header.has_producer:
            expected = self.sequences.get(header.producer_id, 0)
            if header.last_sequence + 1 == expected:
                return ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1
            if header.base_sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.sequences[header.producer_id] = header.last_sequence + 1
        base_offset = self.end_offset
        assign(header, memoryview(batch), base_offset, self.leader_epoch)
        self.batches.append(batch)
        return ErrorCode.NONE, base_offset

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in read_records(batch)]


class PlayedCluster:
    """`faults[api]` is what becomes of the next requests of an API: an error for all its partitions, or a `Fault`."""

    def __init__(self, topics: dict[str, int] | None = None, brokers: int = 1) -> None:
        self.topic_ids: dict[str, UUID] = {}
        self.logs: dict[TopicPartition, PlayedLog] = {}
        self.faults: defaultdict[int, deque[ErrorCode | Fault]] = defaultdict(deque)
        self.requests: list[tuple[int, ApiKey, int]] = []
        """Broker, API and version of each request so far."""
        self.versions_max: dict[int, int] = {}
        self.batch_bytes_max = sys.maxsize
        self.next_producer_id = 1000
        self._broker_count = brokers
        self._servers: list[asyncio.Server] = []
        self._ports: dict[int, int] = {}
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._appended = asyncio.Event()
        for name, count in (topics or {}).items():
            self.add_topic(name, count)

    def add_topic(self, name: str, partitions: int) -> None:
        self.topic_ids[name] = UUID(int=len(self.topic_ids) + 1)
        for index in range(partitions):
            self.logs[TopicPartition(name, index)] = PlayedLog(leader_id=1 + index % self._broker_count)

    def move_leader(self, partition: TopicPartition, node_id: int) -> None:
        log = self.logs[partition]
        log.leader_id = node_id
        log.leader_epoch += 1

    async def __aenter__(self) -> "PlayedCluster":
        for node_id in range(1, self._broker_count + 1):
            server = await asyncio.start_server(functools.partial(self._serve, node_id), "127.0.0.1", 0, limit=1 << 24)
            self._servers.append(server)
            self._ports[node_id] = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        for server in self._servers:
            server.close()
        serving = list(self._serving.items())
        for _, writer in serving:
            writer.transport.abort()
        self._appended.set()  # for those that wait for records
        await asyncio.gather(*(task for task, _ in serving))

    def port(self, node_id: int) -> int:
        return self._ports[node_id]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port(1)}"

    def append(self, partition: TopicPartition, batch: bytes | bytearray) -> None:
        code, _ = self.logs[partition].append(batch)
        assert code is ErrorCode.NONE, code
        self._appended.set()

    def count(self, api_key: ApiKey) -> int:
        return sum(key == api_key for _, key, _ in self.requests)

    # --- the broker's side ----------------------------------------------------------------------------------

    async def _serve(self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: its requests one after the other, as a broker does."""
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            while await self._answer(node_id, memoryview(await read_frame(reader)), writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            del self._serving[task]

    async def _answer(self, node_id: int, frame: memoryview, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        header = parse_request_header(frame)
        api_key = ApiKey(header.api_key)
        self.requests.append((node_id, api_key, header.api_version))
        fault = self.faults[api_key].popleft() if self.faults[api_key] else None
        if fault is Fault.CLOSE:
            return False
        if fault is Fault.SILENCE:
            return True
        code = fault if isinstance(fault, ErrorCode) else None
        body = await self._body(node_id, header, frame[header.body_position :], code)
        if fault is Fault.DO_AND_CLOSE or writer.is_closing():
            return False
        if body is not None:
            writer.write(response_start(api_key, header.api_version, header.correlation_id, len(body)) + body)
        return True

    async def _body(
        self, node_id: int, header: RequestHeader, body: memoryview, fault: ErrorCode | None
    ) -> bytes | None:
        version = header.api_version
        match header.api_key:
            case ApiKey.PRODUCE:
                return self._produce(node_id, version, body, fault)
            case ApiKey.FETCH:
                return await self._fetch(node_id, version, body, fault)
        request = decode_request(header.api_key, version, body)
        values = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
        }[ApiKey(header.api_key)](request, fault)
        return write_response(header.api_key, version, values)

    def _api_versions(self, request: Any, fault: ErrorCode | None) -> dict[str, Any]:
        ranges = [
            {
                "api_key": api.key,
                "min_version": api.advertised_min,
                "max_version": self.versions_max.get(api.key, api.version_max),
            }
            for api in APIS.values()
        ]
        return {"error_code": fault or 0, "api_keys": ranges}

    def _metadata(self, request: Any, fault: ErrorCode | None) -> dict[str, Any]:
        names = list(self.topic_ids) if request.topics is None else [topic.name for topic in request.topics]
        return {
            "brokers": [endpoint._asdict() for endpoint in self._endpoints()],
            "cluster_id": "castle",
            "controller_id": 1,
            "topics": [self._topic(name, fault) for name in names],
        }

    def _endpoints(self) -> list[NodeEndpoint]:
        return [NodeEndpoint(node_id, "127.0.0.1", port) for node_id, port in self._ports.items()]

    def _topic(self, name: str, fault: ErrorCode | None) -> dict[str, Any]:
        if name not in self.topic_ids or fault is not None:
            code = fault or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return {"error_code": code, "name": name, "partitions": []}
        partitions = [
            {
                "partition_index": partition.partition,
                "leader_id": log.leader_id,
                "leader_epoch": log.leader_epoch,
                "replica_nodes": [log.leader_id],
                "isr_nodes": [log.leader_id],
                "offline_replicas": [],
            }
            for partition, log in self.logs.items()
            if partition.topic == name
        ]
        return {"name": name, "topic_id": self.topic_ids[name], "partitions": partitions}

    def _list_offsets(self, request: Any, fault: ErrorCode | None) -> dict[str, Any]:
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                log = self.logs[TopicPartition(topic.name, asked.partition_index)]
                offset = log.end_offset if asked.timestamp == -1 else log.start_offset
                reply = {"partition_index": asked.partition_index, "error_code": fault or 0, "offset": offset}
                partitions.append(reply)
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}

    def _init_producer_id(self, request: Any, fault: ErrorCode | None) -> dict[str, Any]:
        self.next_producer_id += 1
        return {"error_code": fault or 0, "producer_id": self.next_producer_id, "producer_epoch": 0}

    def _log(self, topic: TopicKey, index: int) -> PlayedLog:
        if isinstance(topic, bytes):
            topic = next(name for name, topic_id in self.topic_ids.items() if topic_id.bytes == topic)
        return self.logs[TopicPartition(topic, index)]

    def _produce(self, node_id: int, version: int, body: memoryview, fault: ErrorCode | None) -> bytes | None:
        request = decode_produce(version, body)
        results = [self._append(node_id, batch, fault) for batch in request.batches]
        if request.acks == 0:
            return None
        return encode_produced(version, request.batches, results, endpoints=self._endpoints())

    def _append(self, node_id: int, batch: ProduceBatch, fault: ErrorCode | None) -> ProduceResult:
        log = self._log(batch.topic, batch.partition)
        if fault is not None:
            return ProduceResult(fault, error_message="as the test wants it")
        if log.leader_id != node_id:
            leader = LeaderAndEpoch(log.leader_id, log.leader_epoch)
            return ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=leader)
        assert batch.records is not None
        if len(batch.records) > self.batch_bytes_max:
            return ProduceResult(ErrorCode.MESSAGE_TOO_LARGE)
        code, base_offset = log.append(batch.records)
        return ProduceResult(code, base_offset)

    async def _fetch(self, node_id: int, version: int, body: memoryview, fault: ErrorCode | None) -> bytes:
        request = decode_fetch(version, body)
        results = self._read_all(node_id, request, fault)
        if not any(result.error_code or result.records for _, result in results):
            self._appended.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(request.wait_ms / 1000):
                    await self._appended.wait()
            results = self._read_all(node_id, request, fault)
        encoded = encode_fetched(version, results, endpoints=self._endpoints())
        return b"".join(encoded.pieces)  # type: ignore[arg-type]

    def _read_all(
        self, node_id: int, request: Fetch, fault: ErrorCode | None
    ) -> list[tuple[PartitionKey, FetchResult]]:
        return [(one.key, self._read(node_id, self._log(*one.key), one.offset, fault)) for one in request.wanted]

    def _read(self, node_id: int, log: PlayedLog, offset: int, fault: ErrorCode | None) -> FetchResult:
        if fault is not None:
            return FetchResult(None, error_code=fault)
        if log.leader_id != node_id:
            leader = LeaderAndEpoch(log.leader_id, log.leader_epoch)
            return FetchResult(None, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=leader)
        if not log.start_offset <= offset <= log.end_offset:
            return FetchResult(None, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        wanted = [batch for batch in log.batches if read_header(batch).next_offset > offset]
        end = log.end_offset
        return FetchResult(b"".join(wanted), end, end, log.start_offset, log.aborted or None)
