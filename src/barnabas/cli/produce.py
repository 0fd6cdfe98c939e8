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

from barnabas.cli.remote import DEFAULT_BOOTSTRAP, Bootstrap, CommandFailed, parse_assignments, with_cluster

if TYPE_CHECKING:
    from barnabas.cli.record_input import LineFormat
    from barnabas.client.cluster import Cluster
    from barnabas.client.producer import ProducerOptions

_CHUNK_BYTES: Final = 1 << 18
_LINE_BYTES_MAX: Final = 64 << 20


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
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the records go.", show_default=False)],
    path: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Where the lines come from; else standard input.", show_default=False),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-k", metavar="TEXT", help="What is before it in a line is the key."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT", help="The key of records that have none.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record; may be repeated."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Lines are JSON objects: value, key, headers, partition, timestamp.")
    ] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Send everything to this one.", min=0)
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="How batches are compressed.")
    ] = Compression.NONE,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Who must have a record: all replicas, the leader, nobody.")
    ] = Acks.ALL,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send records to a topic, one for each line.

    Examples:

      echo 'two coffees' | barnabas produce orders

      barnabas produce orders orders.txt --key-separator : --compression zstd

      barnabas consume orders --json | barnabas produce copies --json
    """
    from barnabas.cli.output import human_bytes, plural, remark
    from barnabas.cli.record_input import LineFormat
    from barnabas.client.producer import ProducerOptions
    from barnabas.records.batch import Codec

    headers = [(name, value.encode()) for name, value in parse_assignments(header or [], "--header").items()]
    line_format = LineFormat(
        as_json, key_separator.encode() if key_separator else None, None if key is None else key.encode(), headers
    )
    options = ProducerOptions(
        acks=-1 if acks is Acks.ALL else int(acks.value), codec=Codec[compression.name], batch_bytes_max=256 << 10
    )
    with ExitStack() as stack:
        try:
            source = sys.stdin.buffer if path is None else stack.enter_context(open(path, "rb"))
        except OSError as error:
            raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
        sending = _Sending(topic, partition, line_format, options, source)
        with_cluster(bootstrap, sending.run, is_stream=True)
    remark(f"produced {plural(sending.records, 'record')} ({human_bytes(sending.read_bytes)}) to '{topic}'")


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
        self.records = 0
        self.read_bytes = 0

    async def run(self, cluster: "Cluster") -> None:
        from barnabas.cli.output import plural, progress
        from barnabas.cli.record_input import InvalidLine
        from barnabas.client.producer import Producer

        number = 0
        with progress(f"to {self._topic}", _size_bytes(self._source)) as advance:
            async with Producer(cluster, self._options) as producer:
                async for line in _lines(self._source, advance):
                    number += 1
                    self.read_bytes += len(line) + 1
                    try:
                        record = self._line_format.parse(line)
                    except InvalidLine as error:
                        await producer.flush()
                        sent = f" ({plural(self.records, 'record')} before it went out)" if self.records else ""
                        raise CommandFailed(f"line {number}: {error}{sent}") from error
                    await producer.send(
                        self._topic,
                        record.value,
                        key=record.key,
                        headers=record.headers,
                        partition=record.partition if self._partition is None else self._partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    self.records += 1


async def _lines(source: BinaryIO, advance: Callable[[int], None]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in _chunks(source):
        advance(len(chunk))
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LINE_BYTES_MAX:
            raise CommandFailed(f"a line of more than {_LINE_BYTES_MAX >> 20} MiB; is this text?")
        for line in lines:
            yield line
    if rest:
        yield rest


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


def _size_bytes(source: BinaryIO) -> int:
    try:
        return os.fstat(source.fileno()).st_size
    except UnsupportedOperation:
        return 0
