"""`barnabas produce`: sends lines from standard input or a file to a topic.

Lines are read as bytes and split at line feeds, so values may be anything else. Reading waits for the broker when it is
slower than the source, so a file of any size is sent in bounded memory.
"""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from enum import Enum
from io import UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from barnabas.cli import completion
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, Bootstrap, CommandFailed, parse_assignments, with_cluster

if TYPE_CHECKING:
    from barnabas.cli.records.record_input import LineFormat
    from barnabas.client.cluster import Cluster
    from barnabas.client.producing.producer import Producer, ProducerOptions

_CHUNK_BYTES: Final = 1 << 18
_LINE_BYTES_MAX: Final = 64 << 20
_SILENT_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.25
_SETTLE_SECONDS: Final = 1.0


class Compression(Enum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(Enum):
    ALL = "all"
    LEADER = "1"
    NONE = "0"


def produce(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="The topic to write to.", show_default=False, autocompletion=completion.topics
        ),
    ],
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="The file to read lines from. [default: standard input]", show_default=False
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-k", metavar="TEXT", help="Separates the key from the value in each line."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="The key of records that have no key.")
    ] = None,
    null: Annotated[
        str | None,
        typer.Option(
            "--null", metavar="TEXT", help="The text that means null: a tombstone as a value, no key as a key."
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header for every record; may be repeated."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Lines are JSON objects: value, key, headers, partition, timestamp.")
    ] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", help="Send everything to this partition.", min=0)
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="How batches are compressed.")
    ] = Compression.NONE,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Who must have a record: all in-sync replicas, the leader, or nobody.")
    ] = Acks.ALL,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send records to a topic, one per line.

    Examples:

      echo 'two coffees' | barnabas produce orders

      barnabas produce orders orders.txt --key-separator : --compression zstd

      barnabas consume orders --json | barnabas produce copies --json

      echo '42:NULL' | barnabas produce orders -k : --null NULL
    """
    from barnabas.cli.output import remark
    from barnabas.cli.records.record_input import LineFormat
    from barnabas.client.producing.producer import ProducerOptions
    from barnabas.records.batch import Codec

    if as_json and null is not None:
        raise CommandFailed("--null is for lines of text; with --json write null")
    headers = [(name, value.encode()) for name, value in parse_assignments(header or [], "--header").items()]
    line_format = LineFormat(as_json, _encoded(key_separator) or None, _encoded(key), headers, _encoded(null))
    options = ProducerOptions(
        acks=-1 if acks is Acks.ALL else int(acks.value), codec=Codec[compression.name], batch_bytes_max=256 << 10
    )
    with ExitStack() as stack:
        try:
            source = _standard_input() if path is None else stack.enter_context(open(path, "rb"))
        except OSError as error:
            raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
        sending = _Sending(topic, partition, line_format, options, source)
        try:
            with_cluster(bootstrap, sending.run, is_stream=True)
        except CommandFailed as error:
            raise CommandFailed(f"{error}{sending.account_of_failure()}") from error
        except KeyboardInterrupt:
            if sys.stdin is not None and sys.stdin.isatty():
                sys.stderr.write("\n")  # the terminal has written ^C
            remark(sending.account())
            raise
    remark(sending.account())


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise CommandFailed("there is no standard input; give a FILE")
    return sys.stdin.buffer


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


class _Sending:
    """One run of the command, with what it has done so far."""

    def __init__(
        self,
        topic: str,
        partition: int | None,
        line_format: "LineFormat",
        options: "ProducerOptions",
        source: BinaryIO,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._line_format = line_format
        self._options = options
        self._source = source
        self._records = 0
        self._read_bytes = 0
        self._delivered_records = 0

    def account(self) -> str:
        """How many of the records that were read are delivered."""
        from barnabas.cli.output import human_bytes, plural

        records = plural(self._records, "record")
        missing = self._records - self._delivered_records
        if missing:
            return f"delivered {self._delivered_records:,} of {records} to '{self._topic}'; {missing:,} not delivered"
        return f"produced {records} ({human_bytes(self._read_bytes)}) to '{self._topic}'"

    def account_of_failure(self) -> str:
        """The same behind what went wrong; nothing when that was before the first record."""
        return f"; {self.account()}" if self._records else ""

    async def run(self, cluster: "Cluster") -> None:
        from barnabas.cli.output import remark
        from barnabas.client.producing.producer import Producer

        if self._source.isatty():
            remark("one record per line; Ctrl-D ends the input")
        async with Producer(cluster, self._options) as producer:
            try:
                await self._until_sent_or_failed(cluster, producer)
            except BaseException:
                await _settle(producer)
                raise
            finally:
                self._delivered_records = producer.status().delivered_records

    async def _until_sent_or_failed(self, cluster: "Cluster", producer: "Producer") -> None:
        """Ends at the first record that fails, instead of sending the rest of a large file first."""
        sending = asyncio.ensure_future(self._send_lines(cluster, producer))
        watching = asyncio.ensure_future(_watch(producer))
        try:
            await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            else:
                producer.raise_failure()
        finally:
            for task in (sending, watching):
                task.cancel()
            await asyncio.wait((sending, watching))

    async def _send_lines(self, cluster: "Cluster", producer: "Producer") -> None:
        from barnabas.cli.lines import LineTooLong
        from barnabas.cli.output import progress
        from barnabas.cli.records.record_input import InvalidLine

        is_typed = self._source.isatty()
        with progress(f"to {self._topic}", _size_bytes(self._source), is_shown=not is_typed) as advance:
            try:
                async for line in _lines(self._source, advance):
                    record = self._line_format.parse(line)
                    if not self._records:
                        await self._find_topic(cluster, producer)
                    await producer.send(
                        self._topic,
                        record.value,
                        key=record.key,
                        headers=record.headers,
                        partition=record.partition if self._partition is None else self._partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    self._records += 1
                    self._read_bytes += len(line) + 1
            except (InvalidLine, LineTooLong) as error:
                raise CommandFailed(f"line {self._records + 1}: {error}") from error
            await producer.flush()

    async def _find_topic(self, cluster: "Cluster", producer: "Producer") -> None:
        """Says so when the topic was not there and the broker creates it."""
        from barnabas.cli.output import plural, remark
        from barnabas.client.errors import UnknownTopic

        name = self._topic
        is_new = not await _exists(cluster, name)
        loop = asyncio.get_running_loop()
        saying = loop.call_later(_SILENT_SECONDS, remark, f"waiting for the broker to create topic '{name}'")
        try:
            topic = await producer.find_topic(name)
        except UnknownTopic as error:
            raise CommandFailed(
                f"topic '{name}' does not exist, and the broker does not create topics automatically; create it with "
                f"'barnabas topic create {name}'"
            ) from error
        finally:
            saying.cancel()
        if is_new:
            remark(f"created topic '{name}' with {plural(len(topic.partitions), 'partition')}")


async def _exists(cluster: "Cluster", topic: str) -> bool:
    from barnabas.client.errors import UnknownTopic
    from barnabas.net.errors import NetworkFailed
    from barnabas.wire.errors import KafkaError

    try:
        await cluster.topic(topic)
    except UnknownTopic:
        return False
    except (NetworkFailed, KafkaError):
        pass  # the next use of the topic meets it again
    return True


async def _watch(producer: "Producer") -> None:
    """Says what records wait for; returns when one has failed."""
    from barnabas.cli.output import remark
    from barnabas.cli.waiting import WaitingReport

    loop = asyncio.get_running_loop()
    report = WaitingReport(loop.time())
    while not (status := producer.status()).failed_records:
        line = report.line(status, loop.time())
        if line is not None:
            remark(line)
        await asyncio.sleep(_LOOK_SECONDS)


async def _settle(producer: "Producer") -> None:
    """Gives the records that were read a moment to arrive, so that the account of them is right."""
    flushing = asyncio.ensure_future(producer.flush())
    await asyncio.wait((flushing,), timeout=_SETTLE_SECONDS)
    flushing.cancel()
    await asyncio.wait((flushing,))
    if not flushing.cancelled():
        flushing.exception()  # only the first failure is reported


async def _lines(source: BinaryIO, advance: Callable[[int], None]) -> AsyncIterator[bytes]:
    from barnabas.cli.lines import LineSplitter

    splitter = LineSplitter(_LINE_BYTES_MAX)
    chunks = _chunks(source)
    while True:
        try:
            chunk = await anext(chunks, None)
        except OSError as error:
            raise CommandFailed(f"cannot read the input: {error.strerror}") from error
        if chunk is None:
            break
        advance(len(chunk))
        for line in splitter.feed(chunk):
            yield line
    for line in splitter.finish():
        yield line


async def _chunks(source: BinaryIO) -> AsyncIterator[bytes]:
    """A pipe or a terminal is waited for by the event loop, which goes on sending meanwhile and heeds Ctrl-C."""
    descriptor = _waitable_descriptor(source)
    if descriptor is None:
        while chunk := source.read(_CHUNK_BYTES):
            yield chunk
        return
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        while True:
            await readable.wait()
            readable.clear()
            chunk = os.read(descriptor, _CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
    finally:
        loop.remove_reader(descriptor)


def _waitable_descriptor(source: BinaryIO) -> int | None:
    """None for what is always readable, such as a file."""
    try:
        descriptor = source.fileno()
    except UnsupportedOperation:
        return None
    mode = os.fstat(descriptor).st_mode
    is_waitable = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
    return descriptor if is_waitable else None


def _size_bytes(source: BinaryIO) -> int | None:
    """None of what comes through a pipe."""
    try:
        return os.fstat(source.fileno()).st_size or None
    except UnsupportedOperation:
        return None
