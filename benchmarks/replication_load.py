"""The load on a replicated cluster, from a process of its own: `python -m benchmarks.replication_load KIND --ports …`.

    frames       batches of 128 KB that were encoded beforehand, over raw sockets, acks=all: a connection for each
                 partition, five batches in flight on each, as four producers have it. It takes so little of the
                 processors that the brokers are measured and not a client
    librdkafka   one confluent-kafka producer, acks=all, linger 5 ms, batches of 128 KB
    paced        records at a given rate and a consumer of all of them, in one thread and with one clock

It says "ready" when it is connected, begins with the next line of its standard input, and ends by its time or its
bytes, whichever comes first. The result is one line of JSON (`broker_load.Outcome`): `requests` are records, and the
processor time is this process's own.

A paced record has a moment at which it is due, evenly spaced; it waits in its batch until that is sent, up to 5 ms
later, and its time ends when a fetch has brought it. A record that is sent late, because the cluster or this process
was slow, has waited since it was due.
"""

import argparse
import gc
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Producer

from barnabas.base.clock import SystemClock
from barnabas.records.builder import BatchBuilder
from barnabas.wire.apis import ApiKey
from barnabas.wire.fetch_response import decode_fetch_response
from barnabas.wire.framing import LENGTH_BYTES, parse_response_header
from barnabas.wire.primitives import INT32
from benchmarks.broker_load import (
    BATCH_BYTES,
    FETCH_BYTES,
    FETCH_VERSION,
    HOST,
    Load,
    LoadFailed,
    Meter,
    Outcome,
    check_produced,
    connect,
    fetches_frame,
    load_batch,
    produce_frame,
    pump,
    read_reply,
    report_outcome,
)
from benchmarks.cluster_view import partitions_of
from benchmarks.logs import VALUE_BYTES

READY: Final = "ready"
LINGER_SECONDS: Final = 0.005
IN_FLIGHT: Final = 5
_ALL: Final = -1
_COUNT_POSITION: Final = 57
"""Of the number of records, in a batch."""
_DRAIN_SECONDS: Final = 60.0
_CHUNK: Final = BATCH_BYTES // VALUE_BYTES
_AGES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of the records of a batch that are timed: how long they have waited in it, of the time that it lingers."""


@dataclass(frozen=True, slots=True)
class Asked:
    """By the command line."""

    ports: Mapping[int, int]
    topic: str
    partitions: int
    seconds: float
    megabytes: float
    rate: float

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def leaders(self) -> dict[int, int]:
        """The port for each partition."""
        view = partitions_of(next(iter(self.ports.values())), self.topic)
        if len(view) != self.partitions:
            raise LoadFailed(f"{self.topic} has {len(view)} partitions")
        return {index: self.ports[one.leader] for index, one in sorted(view.items())}


def _await_start() -> None:
    print(READY, flush=True)
    sys.stdin.readline()


def _records_of(batch: bytes) -> int:
    count: int = INT32.unpack_from(batch, _COUNT_POSITION)[0]
    return count


# -- as much as goes -------------------------------------------------------------------------------------------------


def frames(asked: Asked) -> Outcome:
    batch = load_batch(BATCH_BYTES)
    leaders = asked.leaders()
    made = [produce_frame(asked.topic, index, batch, _ALL) for index in leaders]
    count = len(made)
    load = Load(
        "produce",
        port=0,
        pid=os.getpid(),
        topic=asked.topic,
        partitions=count,
        connections=count,
        depth=IN_FLIGHT,
        batch_bytes=BATCH_BYTES,
        seconds=asked.seconds,
        megabytes=asked.megabytes,
    )
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(port)) for port in leaders.values()]
        for connection, frame in zip(connections, made, strict=True):
            connection.sendall(frame)
            reply = read_reply(connection)
            check_produced(reply)
        _await_start()
        done = pump(load, connections, made, LENGTH_BYTES + len(reply), len(batch))
    return Outcome(done.seconds, done.requests * _records_of(batch), done.transferred_bytes, done.cpu_seconds)


def librdkafka(asked: Asked) -> Outcome:
    problems: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": asked.bootstrap,
            "acks": "all",
            "linger.ms": LINGER_SECONDS * 1e3,
            "batch.size": BATCH_BYTES,
            "max.in.flight.requests.per.connection": IN_FLIGHT,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
            "log_level": 0,
        }
    )

    def on_delivery(error: object, _message: object) -> None:
        problems.append(str(error))

    value = bytes(range(VALUE_BYTES))
    chunk: list[dict[str, Any]] = [{"value": value}] * _CHUNK
    producer.produce(asked.topic, value, partition=0, on_delivery=on_delivery)
    producer.flush()
    _await_start()
    meter = Meter(os.getpid())
    deadline = time.monotonic() + asked.seconds
    records = number = 0
    while time.monotonic() < deadline and records * VALUE_BYTES < asked.megabytes * 1e6:
        taken = producer.produce_batch(asked.topic, chunk, partition=number % asked.partitions, on_delivery=on_delivery)
        records += taken
        number += 1
        producer.poll(0 if taken == _CHUNK else LINGER_SECONDS)
    if left := producer.flush(_DRAIN_SECONDS):
        raise LoadFailed(f"{left} records are not delivered")
    if problems:
        raise LoadFailed(f"{len(problems)} records failed: {problems[0]}")
    return meter.outcome(records, records * VALUE_BYTES)


# -- paced ---------------------------------------------------------------------------------------------------------


class _Replies:
    """A connection whose replies are taken from it as they come."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._received = bytearray()

    def fileno(self) -> int:
        return self.connection.fileno()

    def take(self) -> list[memoryview]:
        """Those that are whole now, after one `recv`."""
        data = self.connection.recv(FETCH_BYTES)
        if not data:
            raise LoadFailed("the broker closed the connection")
        self._received += data
        whole = []
        position = 0
        while len(self._received) >= position + LENGTH_BYTES:
            end = position + LENGTH_BYTES + INT32.unpack_from(self._received, position)[0]
            if len(self._received) < end:
                break
            whole.append(memoryview(bytes(self._received[position + LENGTH_BYTES : end])))
            position = end
        del self._received[:position]
        return whole


class _Writer(_Replies):
    """To one partition. `due` is when each batch should have been sent that has not arrived yet."""

    def __init__(self, connection: socket.socket, frame: bytes) -> None:
        super().__init__(connection)
        self.due: deque[float] = deque()
        self._frame = frame

    def send(self, due: float) -> None:
        self.due.append(due)
        self.connection.sendall(self._frame)


class _Reader(_Replies):
    """Of all partitions that a broker leads, by requests one after the other."""

    def __init__(self, connection: socket.socket, topic: str, offsets: dict[int, int], batch: bytes) -> None:
        super().__init__(connection)
        self._topic = topic
        self._offsets = offsets
        self._batch_bytes = len(batch)
        self._batch_records = _records_of(batch)

    def ask(self) -> None:
        self.connection.sendall(fetches_frame(self._topic, self._offsets))

    def arrived(self, reply: memoryview) -> list[tuple[int, int]]:
        """Of which partition how many batches."""
        header = parse_response_header(ApiKey.FETCH, FETCH_VERSION, reply)
        answer = decode_fetch_response(FETCH_VERSION, reply[header.body_position :])
        found = []
        for one in answer.topics[0].partitions:
            if one.error_code:
                raise LoadFailed(f"a fetch was answered with error {one.error_code}")
            batches = len(one.records or b"") // self._batch_bytes
            if batches:
                self._offsets[one.index] += batches * self._batch_records
                found.append((one.index, batches))
        return found


def paced(asked: Asked) -> Outcome:
    leaders = asked.leaders()
    interval = LINGER_SECONDS / asked.partitions
    batch = _batch_of(max(1, round(asked.rate * interval)))
    interval = _records_of(batch) / asked.rate
    with ExitStack() as stack:
        writers, offsets = [], {}
        for index, port in leaders.items():
            frame = produce_frame(asked.topic, index, batch, _ALL)
            writer = _Writer(stack.enter_context(connect(port)), frame)
            writer.connection.sendall(frame)
            offsets[index] = check_produced(read_reply(writer.connection)) + _records_of(batch)
            writers.append(writer)
        readers = []
        for port in sorted(set(leaders.values())):
            led = {index: offsets[index] for index, whose in leaders.items() if whose == port}
            readers.append(_Reader(stack.enter_context(connect(port)), asked.topic, led, batch))
        _await_start()
        meter = Meter(os.getpid())
        sent, times = _go(asked.seconds, interval, interval * asked.partitions, writers, readers)
        return meter.outcome(sent * _records_of(batch), sent * len(batch), times)


def _batch_of(records: int) -> bytes:
    builder, now_ms = BatchBuilder(), SystemClock().now_ms()
    for _ in range(records):
        builder.append(now_ms, None, bytes(VALUE_BYTES))
    return bytes(builder.build())


def _go(
    seconds: float, interval: float, linger: float, writers: Sequence[_Writer], readers: Sequence[_Reader]
) -> tuple[int, list[float]]:
    """How many batches were sent, and how long records took; those of the first quarter are not counted."""
    clock = time.perf_counter
    times: list[float] = []
    everyone: list[_Replies] = [*writers, *readers]
    for reader in readers:
        reader.ask()
    began = clock()
    counted_from, over_at, give_up_at = began + seconds / 4, began + seconds, began + seconds + _DRAIN_SECONDS
    due, sent, under_way = began, 0, 0
    while due < over_at or under_way:
        now = clock()
        if now > give_up_at:
            raise LoadFailed(f"{under_way} batches have not arrived")
        while due <= now and due < over_at:
            writers[sent % len(writers)].send(due)
            sent, under_way, due = sent + 1, under_way + 1, due + interval
        pause = max(0.0, due - clock()) if due < over_at else 1.0
        for one in select.select(everyone, [], [], pause)[0]:
            replies = one.take()
            if isinstance(one, _Writer):
                for reply in replies:
                    check_produced(reply)
                continue
            for reply in replies:
                for index, batches in one.arrived(reply):
                    now = clock()
                    under_way -= batches
                    for was_due in (writers[index].due.popleft() for _ in range(batches)):
                        if was_due >= counted_from:
                            times += [now - was_due + age * linger for age in _AGES]
                one.ask()
    return sent, times


KINDS: Final[dict[str, Callable[[Asked], Outcome]]] = {"frames": frames, "librdkafka": librdkafka, "paced": paced}


def main(arguments: list[str]) -> int:
    program = "python -m benchmarks.replication_load"
    parser = argparse.ArgumentParser(prog=program, description="Puts load on a replicated cluster.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--ports", nargs="+", required=True, help="ID=PORT of every broker")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--megabytes", type=float, default=1e9)
    parser.add_argument("--rate", type=float, default=10_000.0, help="records a second, of `paced`")
    chosen = parser.parse_args(arguments)
    ports = {int(number): int(port) for number, _, port in (one.partition("=") for one in chosen.ports)}
    gc.disable()  # what it would find is little, and it would hold up what is timed
    asked = Asked(ports, chosen.topic, chosen.partitions, chosen.seconds, chosen.megabytes, chosen.rate)
    return report_outcome(chosen.kind, lambda: KINDS[chosen.kind](asked))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
