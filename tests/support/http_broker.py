"""The HTTP port of a broker that has nothing but metrics and a state, and a client that reads its answers."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from barnabas.base.metrics import Description, Kind, Metrics
from barnabas.broker.health import BrokerState, Health
from barnabas.broker.http import http_port
from barnabas.broker.readiness import Harm, Readiness
from barnabas.net.sockets import SocketNetwork
from barnabas.net.stream import ListenAddress

HOST = "127.0.0.1"
GET = b"GET %s HTTP/1.1\r\nHost: broker\r\n\r\n"
APPENDED = Description(Kind.COUNTER, "appended_bytes_total", "Bytes.")
LOG_BYTES = Description(Kind.GAUGE, "log_bytes", "Sizes.", ("topic",))
WAITS = Description(Kind.HISTOGRAM, "wait_seconds", "Waits.", ("api",), (0.5, 1.0))


@dataclass
class Broker:
    """What the port is told of a broker."""

    metrics: Metrics
    health: Health
    port: int = 0
    preparations: int = 0
    readings: int = 0
    readiness: Readiness = field(default_factory=lambda: Readiness((), dict.fromkeys(Harm, 0)))

    async def prepare(self):
        await asyncio.sleep(0)
        self.preparations += 1

    async def read_readiness(self):
        await asyncio.sleep(0)
        self.readings += 1
        return self.readiness


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@asynccontextmanager
async def serving(state=BrokerState.READY, executor=None):
    health = Health(state, ("/data/b is offline: gone",), ("/data/b",), ("/data/c",))
    broker = Broker(Metrics(), health)
    own_executor = ThreadPoolExecutor(1)
    address = ListenAddress(HOST, 0)
    try:
        async with http_port(
            SocketNetwork(),
            address,
            broker.metrics,
            lambda: broker.health,
            broker.read_readiness,
            broker.prepare,
            executor or own_executor,
        ) as listening:
            broker.port = listening.port
            yield broker
    finally:
        own_executor.shutdown()


async def exchange(port, request):
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request)
    reply = await reader.read()
    writer.close()
    await writer.wait_closed()
    return parse(reply)


async def rest_of(reader):
    """What still comes. Whether the end of it is an orderly one is left to the operating system."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def parse(reply):
    head, _, body = reply.partition(b"\r\n\r\n")
    status_line, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(status_line.split()[1]), headers, body)


def samples_of(text):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }
