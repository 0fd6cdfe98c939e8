"""The load on a broker, from a process of its own: `python -m benchmarks.broker_load KIND --port N --pid N …`.

Raw sockets and frames that are encoded beforehand, so that the broker and not this program is measured; every broker
gets the same bytes. The result is one line of JSON on standard output.

    produce      batches in, `depth` in flight on each connection, each to one of the topic's partitions, in turn
    consume      fetches of up to 1 MB out, one in flight on each connection; the records' bytes are thrown away by the
                 kernel (MSG_TRUNC), because a client that copies them would be the slowest part
    end_to_end   one record after the other, each timed from its sending to its arrival at a fetch that waits for it
    idle         connections that have asked one question and then say nothing

Every kind ends by its time (`--seconds`) or its bytes (`--megabytes`), whichever comes first. What the broker's process
used of the processor meanwhile is read from /proc. An answer that is not the expected one ends the run.
"""

import argparse
import json
import os
import select
import socket
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from barnabas.base.clock import SystemClock
from barnabas.base.uuid import ZERO_UUID
from barnabas.records.builder import BatchBuilder
from barnabas.wire.apis import ApiKey
from barnabas.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from barnabas.wire.fetch_response import decode_fetch_response
from barnabas.wire.framing import LENGTH_BYTES, parse_response_header, request_start
from barnabas.wire.messages import write_request
from barnabas.wire.primitives import INT32
from barnabas.wire.produce_request import ProducePartition, ProduceRequest, ProduceTopic, encode_produce_request
from barnabas.wire.produce_response import decode_produce_response
from benchmarks.logs import VALUE_BYTES, make_batch

HOST: Final = "127.0.0.1"
BATCH_BYTES: Final = 128 << 10
FETCH_BYTES: Final = 1 << 20
PRODUCE_VERSION: Final = 12
"""The last one that names topics, so that the frames do not depend on what a broker drew for their ids."""
FETCH_VERSION: Final = 12
API_VERSIONS_VERSION: Final = 3
CORRELATION_ID: Final = 7
_CLIENT_ID: Final = "benchmark"
_HEAD_BYTES: Final = 4 << 10
_ROOM_BYTES: Final = 64 << 10
_PAUSE_SECONDS: Final = 0.0005
"""Between the records of `end_to_end`, so that the fetch already waits when a record comes."""
_STALLED_SECONDS: Final = 20.0


class LoadFailed(Exception):  # noqa: N818
    """The broker answered something else, or not at all."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of load measured."""

    seconds: float
    requests: int
    transferred_bytes: int
    cpu_seconds: float
    p50_us: float = 0.0
    p99_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked for, by the command line."""

    kind: str
    port: int
    pid: int
    topic: str
    partitions: int
    connections: int
    depth: int
    batch_bytes: int
    seconds: float
    megabytes: float


def cpu_seconds_of(pid: int) -> float:
    """User and system time of a process, all threads."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes_of(pid: int) -> int:
    with open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- frames -----------------------------------------------------------------------------------------------


def load_batch(batch_bytes: int) -> bytes:
    """A batch of 100-byte records; of one such record when there is no room for two."""
    if batch_bytes > 2 * VALUE_BYTES:
        return bytes(make_batch(batch_bytes))
    builder = BatchBuilder()
    builder.append(SystemClock().now_ms(), None, bytes(VALUE_BYTES))
    return bytes(builder.build())


def produce_frame(topic: str, partition: int, batch: bytes, acks: int = 1) -> bytes:
    wanted = ProduceTopic(topic, ZERO_UUID, [ProducePartition(partition, batch)])
    body = b"".join(encode_produce_request(PRODUCE_VERSION, ProduceRequest(None, acks, 30_000, [wanted])))
    return request_start(ApiKey.PRODUCE, PRODUCE_VERSION, CORRELATION_ID, _CLIENT_ID, len(body)) + body


def fetch_frame(topic: str, partition: int, offset: int, wait_ms: int = 500) -> bytes:
    return fetches_frame(topic, {partition: offset}, wait_ms)


def fetches_frame(topic: str, offsets: Mapping[int, int], wait_ms: int = 500) -> bytes:
    """From several partitions, each at its offset."""
    partitions = [FetchPartition(index, -1, offset, -1, -1, FETCH_BYTES) for index, offset in offsets.items()]
    wanted = FetchTopic(topic, ZERO_UUID, partitions)
    body = encode_fetch_request(FETCH_VERSION, FetchRequest(wait_ms, 1, 50 << 20, topics=[wanted]))
    return request_start(ApiKey.FETCH, FETCH_VERSION, CORRELATION_ID, _CLIENT_ID, len(body)) + body


def api_versions_frame() -> bytes:
    asked = {"client_software_name": "benchmark", "client_software_version": "1"}
    body = write_request(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, asked)
    start = request_start(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, CORRELATION_ID, _CLIENT_ID, len(body))
    return start + body


def connect(port: int) -> socket.socket:
    connection = socket.create_connection((HOST, port), timeout=_STALLED_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_reply(connection: socket.socket) -> memoryview:
    """One whole reply, without the length before it."""
    received = bytearray()
    while len(received) < LENGTH_BYTES or len(received) < LENGTH_BYTES + INT32.unpack_from(received)[0]:
        data = connection.recv(FETCH_BYTES)
        if not data:
            raise LoadFailed("the broker closed the connection")
        received += data
    return memoryview(received)[LENGTH_BYTES:]


def check_produced(reply: memoryview) -> int:
    """The offset that a record got, when it is in the log."""
    header = parse_response_header(ApiKey.PRODUCE, PRODUCE_VERSION, reply)
    answer = decode_produce_response(PRODUCE_VERSION, reply[header.body_position :]).topics[0].partitions[0]
    if answer.error_code:
        raise LoadFailed(f"a batch was refused with error {answer.error_code}: {answer.error_message}")
    return answer.base_offset


# --- kinds of load ----------------------------------------------------------------------------------------


class Meter:
    """Time and processor time since it was made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu_seconds = cpu_seconds_of(pid)
        self._began = time.perf_counter()

    def outcome(self, requests: int, transferred_bytes: int, times: "list[float] | None" = None) -> Outcome:
        seconds = time.perf_counter() - self._began
        cpu_seconds = cpu_seconds_of(self._pid) - self._cpu_seconds
        if not times:
            return Outcome(seconds, requests, transferred_bytes, cpu_seconds)
        cuts = statistics.quantiles(times, n=100)
        return Outcome(seconds, requests, transferred_bytes, cpu_seconds, cuts[49] * 1e6, cuts[98] * 1e6)


class Sending:
    """One connection of `pump`: what is still to be sent, and how much of the next reply has come."""

    __slots__ = ("connection", "frame", "received_bytes", "to_send")

    def __init__(self, connection: socket.socket, frame: bytes) -> None:
        self.connection = connection
        self.frame = frame
        self.received_bytes = 0
        self.to_send = memoryview(b"")

    def send(self, frames: int) -> bool:
        """Whether something is left that the peer does not take now."""
        data: bytes | memoryview = self.frame * frames if frames > 1 else self.frame
        if self.to_send:
            data = b"".join((self.to_send, data)) if frames else self.to_send
        try:
            sent = self.connection.send(data)
        except BlockingIOError:
            sent = 0
        self.to_send = memoryview(data)[sent:]
        return sent < len(data)


def produce(load: Load) -> Outcome:
    batch = load_batch(load.batch_bytes)
    frames = [produce_frame(load.topic, index % load.partitions, batch) for index in range(load.connections)]
    connections = [connect(load.port) for _ in frames]
    for connection, frame in zip(connections, frames, strict=True):
        connection.sendall(frame)
        reply = read_reply(connection)
        check_produced(reply)
    reply_bytes = LENGTH_BYTES + len(reply)  # an error has a message, and another length
    if load.connections == load.depth == 1:
        return one_by_one(load, connections[0], frames[0], reply_bytes, len(batch))
    return pump(load, connections, frames, reply_bytes, len(batch))


def pump(
    load: Load,
    connections: Sequence[socket.socket],
    frames: Sequence[bytes],
    reply_bytes: int,
    payload_bytes: int,
    reply: bytes = b"",
) -> Outcome:
    """Each connection's frame over and over, `depth` of them in flight; all replies have the same length.

    Where errors have that length, too, `reply` is what every reply must be.
    """
    replies_expected = memoryview(reply * (_ROOM_BYTES // reply_bytes + 2))
    poll = select.epoll()
    sendings: dict[int, Sending] = {}
    for connection, frame in zip(connections, frames, strict=True):
        connection.setblocking(False)
        sendings[connection.fileno()] = Sending(connection, frame)
        poll.register(connection.fileno(), select.EPOLLIN)
    room = bytearray(_ROOM_BYTES)
    answered = 0
    answered_max = load.megabytes * 1e6 / payload_bytes
    meter = Meter(load.pid)
    deadline = time.monotonic() + load.seconds
    for descriptor, sending in sendings.items():
        if sending.send(load.depth):
            poll.modify(descriptor, select.EPOLLIN | select.EPOLLOUT)
    while time.monotonic() < deadline and answered < answered_max:
        for descriptor, events in poll.poll(_STALLED_SECONDS):
            sending = sendings[descriptor]
            replies = 0
            if events & ~select.EPOLLOUT:
                received = sending.connection.recv_into(room)
                if not received:
                    raise LoadFailed("the broker closed the connection")
                begins = sending.received_bytes
                if reply and replies_expected[begins : begins + received] != memoryview(room)[:received]:
                    raise LoadFailed("an answer was another one")
                replies, sending.received_bytes = divmod(sending.received_bytes + received, reply_bytes)
                answered += replies
            was_waiting = bool(sending.to_send)
            is_waiting = (replies > 0 or was_waiting) and sending.send(replies)
            if is_waiting != was_waiting:
                poll.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if is_waiting else 0))
    outcome = meter.outcome(answered, answered * payload_bytes)
    if not answered:
        raise LoadFailed("nothing was answered")
    return outcome


def one_by_one(
    load: Load, connection: socket.socket, frame: bytes, reply_bytes: int, payload_bytes: int, reply: bytes = b""
) -> Outcome:
    """On one connection, each request after the answer to the one before, and each one timed."""
    connection.setblocking(True)
    room = bytearray(_HEAD_BYTES)
    times: list[float] = []
    send, receive, clock = connection.sendall, connection.recv_into, time.perf_counter
    meter = Meter(load.pid)
    deadline = began = clock()
    deadline += load.seconds
    while began < deadline:
        send(frame)
        if receive(room) != reply_bytes or (reply and not room.startswith(reply)):
            raise LoadFailed("an answer came in parts, or was another one")
        ended = clock()
        times.append(ended - began)
        began = ended
    return meter.outcome(len(times), len(times) * payload_bytes, times)


class _Fetching:
    """One connection of `consume`: where it reads, and how much of the reply is still to come."""

    __slots__ = ("connection", "missing_bytes", "offset", "partition")

    def __init__(self, connection: socket.socket, partition: int) -> None:
        self.connection = connection
        self.partition = partition
        self.offset = 0
        self.missing_bytes = 0


def consume(load: Load) -> Outcome:
    batch = load_batch(load.batch_bytes)
    batch_count = INT32.unpack_from(batch, 57)[0]
    fetchings: dict[int, _Fetching] = {}
    poll = select.epoll()
    for index in range(load.connections):
        connection = connect(load.port)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        fetchings[connection.fileno()] = _Fetching(connection, index)
        poll.register(connection.fileno(), select.EPOLLIN)
    head, room = bytearray(_HEAD_BYTES), bytearray(2 * FETCH_BYTES)
    overhead_bytes = _fetch_overhead_bytes(load, batch)
    answered = transferred_bytes = 0
    meter = Meter(load.pid)
    deadline = time.monotonic() + load.seconds
    for fetching in fetchings.values():
        fetching.connection.sendall(fetch_frame(load.topic, fetching.partition, 0))
    while time.monotonic() < deadline:
        for descriptor, _ in poll.poll(_STALLED_SECONDS):
            fetching = fetchings[descriptor]
            if fetching.missing_bytes:
                wanted_bytes = min(fetching.missing_bytes, len(room))
                received = fetching.connection.recv_into(room, wanted_bytes, socket.MSG_TRUNC)
            else:
                received = fetching.connection.recv_into(head)
                length = LENGTH_BYTES + INT32.unpack_from(head)[0]
                fetching.missing_bytes = length
                batches = (length - overhead_bytes) // len(batch)
                # From the end of the log, where no whole batch comes, back to its beginning.
                fetching.offset = fetching.offset + batches * batch_count if batches > 0 else 0
            if not received:
                raise LoadFailed("the broker closed the connection")
            transferred_bytes += received
            fetching.missing_bytes -= received
            if not fetching.missing_bytes:
                answered += 1
                fetching.connection.sendall(fetch_frame(load.topic, fetching.partition, fetching.offset, wait_ms=0))
    return meter.outcome(answered, transferred_bytes)


def _fetch_overhead_bytes(load: Load, batch: bytes) -> int:
    """What a fetch reply has around the records."""
    connection = connect(load.port)
    connection.sendall(fetch_frame(load.topic, 0, 0))
    reply = read_reply(connection)
    header = parse_response_header(ApiKey.FETCH, FETCH_VERSION, reply)
    answer = decode_fetch_response(FETCH_VERSION, reply[header.body_position :]).topics[0].partitions[0]
    records = answer.records
    if answer.error_code or not isinstance(records, bytes | bytearray | memoryview) or len(records) < len(batch):
        raise LoadFailed(f"a fetch was answered with error {answer.error_code} or no whole batch")
    return LENGTH_BYTES + len(reply) - len(records)


def end_to_end(load: Load) -> Outcome:
    meter = Meter(load.pid)
    deadline = time.monotonic() + load.seconds
    times = end_to_end_times(load.port, load.topic, load.batch_bytes, lambda: time.monotonic() > deadline)
    return meter.outcome(len(times), 0, times)


def end_to_end_times(port: int, topic: str, batch_bytes: int, is_over: Callable[[], bool]) -> list[float]:
    """How long each record took, until it is over."""
    frame = produce_frame(topic, 0, load_batch(batch_bytes))
    producer, consumer = connect(port), connect(port)
    producer.sendall(frame)
    offset = check_produced(read_reply(producer)) + 1
    times: list[float] = []
    while not is_over():
        consumer.sendall(fetch_frame(topic, 0, offset))
        time.sleep(_PAUSE_SECONDS)
        began = time.perf_counter()
        producer.sendall(frame)
        arrived = read_reply(consumer)
        times.append(time.perf_counter() - began)
        if len(arrived) < VALUE_BYTES:
            raise LoadFailed("a fetch was answered without the record")
        if check_produced(read_reply(producer)) != offset:
            raise LoadFailed("somebody else writes to the topic")
        offset += 1
    return times


def idle(load: Load) -> Outcome:
    """`transferred_bytes` is by how much the broker's memory grew."""
    frame = api_versions_frame()
    connections: list[socket.socket] = []
    before = resident_bytes_of(load.pid)
    meter = Meter(load.pid)
    for _ in range(load.connections):
        connection = connect(load.port)
        connection.sendall(frame)
        read_reply(connection)
        connections.append(connection)
    outcome = meter.outcome(load.connections, resident_bytes_of(load.pid) - before)
    for connection in connections:
        connection.close()
    return outcome


def report_outcome(kind: str, work: Callable[[], Outcome]) -> int:
    """Does the work and prints what it measured; the exit status."""
    try:
        outcome = work()
    except (LoadFailed, OSError) as error:
        print(f"{kind}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(outcome)))
    return 0


KINDS: Final[dict[str, Callable[[Load], Outcome]]] = {
    "produce": produce,
    "consume": consume,
    "end_to_end": end_to_end,
    "idle": idle,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker_load", description="Puts load on a broker.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="of the broker")
    parser.add_argument("--topic", default="")
    parser.add_argument("--partitions", type=int, default=4, help="of the topic; connections take turns")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--depth", type=int, default=1, help="requests in flight on each connection")
    parser.add_argument("--batch-bytes", type=int, default=BATCH_BYTES)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--megabytes", type=float, default=1e9)
    load = Load(**vars(parser.parse_args(arguments)))
    return report_outcome(load.kind, lambda: KINDS[load.kind](load))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
