"""A broker that keeps nothing but the bytes: it answers a producer just enough to be sent record batches.

```python
with CaptureBroker() as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    ...
    broker.captured        # the records of each Produce request, in the order of arrival
```

Every topic that is asked for exists, with one partition. Each connection has a thread, which ends when the
client closes it or with the broker.
"""

import io
import socketserver
import struct
import threading
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

from kio.schema.api_versions.v3 import response as api_versions
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v1 import request as init_producer_id_request
from kio.schema.init_producer_id.v1 import response as init_producer_id
from kio.schema.metadata.v4 import request as metadata_request
from kio.schema.metadata.v4 import response as metadata
from kio.schema.produce.v7 import request as produce_request
from kio.schema.produce.v7 import response as produce
from kio.schema.types import BrokerId, ProducerId
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i32Timedelta, i64

PRODUCER_ID: Final = 4711
PRODUCER_EPOCH: Final = 3

_NODE: Final = BrokerId(0)
_NO_THROTTLE: Final = i32Timedelta.parse(timedelta(0))
_SIZE: Final = struct.Struct(">i")
_REQUEST_START: Final = struct.Struct(">hhi")

# Fetch and FindCoordinator are never called, but librdkafka takes their versions for the sign that a broker
# knows message format 2, lz4 and zstd.
_SERVED_VERSIONS: Final = {0: (3, 7), 1: (4, 11), 3: (0, 4), 10: (0, 2), 18: (0, 3), 22: (0, 1)}

_REQUESTS: Final = {
    0: produce_request.ProduceRequest,
    3: metadata_request.MetadataRequest,
    22: init_producer_id_request.InitProducerIdRequest,
}


class CaptureBroker:
    """Listens on a free port of 127.0.0.1 between `__enter__` and `__exit__`."""

    def __init__(self) -> None:
        self.captured: list[bytes] = []
        self._next_offset = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.broker = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def _port(self) -> int:
        port: int = self._server.server_address[1]
        return port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, frame: bytes) -> bytes | None:
        """The response to one request, or None when the client wants none (acks=0)."""
        key, version, correlation_id = _REQUEST_START.unpack_from(frame)
        response: Any
        if key == 18:
            response = self._api_versions()
        else:
            request = _read_request(key, version, frame)
            match key:
                case 0:
                    response = self._produce(request)
                case 3:
                    response = self._metadata(request)
                case _:
                    response = _init_producer_id()
        if response is None:
            return None
        buffer = io.BytesIO()
        buffer.write(_SIZE.pack(correlation_id))
        entity_writer(type(response))(buffer, response)
        return buffer.getvalue()

    def _api_versions(self) -> api_versions.ApiVersionsResponse:
        return api_versions.ApiVersionsResponse(
            error_code=ErrorCode.none,
            api_keys=tuple(
                api_versions.ApiVersion(api_key=i16(key), min_version=i16(low), max_version=i16(high))
                for key, (low, high) in _SERVED_VERSIONS.items()
            ),
            throttle_time=_NO_THROTTLE,
        )

    def _metadata(self, request: metadata_request.MetadataRequest) -> metadata.MetadataResponse:
        partition = metadata.MetadataResponsePartition(
            error_code=ErrorCode.none,
            partition_index=i32(0),
            leader_id=_NODE,
            replica_nodes=(_NODE,),
            isr_nodes=(_NODE,),
        )
        return metadata.MetadataResponse(
            throttle_time=_NO_THROTTLE,
            brokers=(metadata.MetadataResponseBroker(node_id=_NODE, host="127.0.0.1", port=i32(self._port)),),
            cluster_id="capture",
            controller_id=_NODE,
            topics=tuple(
                metadata.MetadataResponseTopic(error_code=ErrorCode.none, name=topic.name, partitions=(partition,))
                for topic in request.topics or ()
            ),
        )

    def _produce(self, request: produce_request.ProduceRequest) -> produce.ProduceResponse | None:
        topics = tuple(
            produce.TopicProduceResponse(
                name=topic.name,
                partition_responses=tuple(
                    produce.PartitionProduceResponse(
                        index=partition.index,
                        error_code=ErrorCode.none,
                        base_offset=i64(self._capture(bytes(partition.records or b""))),
                    )
                    for partition in topic.partition_data
                ),
            )
            for topic in request.topic_data
        )
        return produce.ProduceResponse(responses=topics) if request.acks else None

    def _capture(self, records: bytes) -> int:
        """Keeps the bytes and returns the offset that the first record gets."""
        (last_offset_delta,) = _SIZE.unpack_from(records, 23)
        with self._lock:
            self.captured.append(records)
            offset = self._next_offset
            self._next_offset += last_offset_delta + 1
        return offset


class _Server(socketserver.ThreadingTCPServer):
    broker: CaptureBroker
    daemon_threads = True


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        while len(size := self.rfile.read(_SIZE.size)) == _SIZE.size:
            frame = self.rfile.read(_SIZE.unpack(size)[0])
            response = self.server.broker.answer(frame)
            if response is not None:
                self.wfile.write(_SIZE.pack(len(response)) + response)


def _read_request(key: int, version: int, frame: bytes) -> Any:
    kind = _REQUESTS[key]
    assert version == kind.__version__, f"API {key} was called with version {version}"
    _, header_bytes = entity_reader(kind.__header_schema__)(frame, 0)
    request, _ = entity_reader(kind)(frame, header_bytes)
    return request


def _init_producer_id() -> init_producer_id.InitProducerIdResponse:
    return init_producer_id.InitProducerIdResponse(
        throttle_time=_NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(PRODUCER_ID),
        producer_epoch=i16(PRODUCER_EPOCH),
    )
