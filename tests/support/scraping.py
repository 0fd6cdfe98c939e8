"""The metrics of a served broker, read as Prometheus reads them, and a client that says what it likes."""

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from barnabas.wire.apis import ApiKey
from barnabas.wire.framing import parse_response_header, request_start
from barnabas.wire.messages import decode_response, write_request
from barnabas.wire.primitives import INT32
from tests.support.broker_parts import ServedBroker


class Scraped(NamedTuple):
    text: str
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]
    """By the name of the sample (a histogram has several) and its labels."""

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, frozenset(labels.items())))

    def all(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        for (sample, labels), value in self.samples.items():
            if sample == name:
                yield dict(labels), value

    @property
    def names(self) -> set[str]:
        """As in the lines that say the types."""
        return {line.split()[2] for line in self.text.splitlines() if line.startswith("# TYPE ")}


async def scrape(served: ServedBroker) -> Scraped:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.broker.metrics_port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b" 200 " in head.splitlines()[0], body
    text = body.decode()
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    return Scraped(text, samples)


class Asker:
    """Asks over a connection, in any version of any API."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        body = write_request(key, version, values)
        self._writer.write(request_start(key, version, 1, "test", len(body)) + body)
        (length,) = INT32.unpack(await self._reader.readexactly(INT32.size))
        reply = memoryview(await self._reader.readexactly(length))
        return decode_response(key, version, reply[parse_response_header(key, version, reply).body_position :])


@asynccontextmanager
async def asking(served: ServedBroker) -> Any:
    host, port = served.broker.bootstrap.split(":")
    reader, writer = await asyncio.open_connection(host, port)
    yield Asker(reader, writer)
    writer.close()
    await writer.wait_closed()
