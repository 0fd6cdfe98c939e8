"""`python -m barnabas.cli.demo` (`make run`): what a broker does, on a million records and in half a minute.

1. starts a broker (`barnabas up`) on a free port, in a process of its own;
2. produces a million records through it;
3. consumes them and compares every byte;
4. produces more, kills the broker (SIGKILL) in the middle of that and starts it again, while the producer goes on;
5. consumes those: each must be there once, and in order;
6. stops the broker.

Each record can be made again from its offset alone, so nothing has to be remembered to compare. The data lies in a
temporary directory that is removed at the end.
"""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

import uvloop

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Offset, TopicPartition
from barnabas.cli.output import complain, human_bytes, plural, progress, say
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.producing.producer import Producer
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.records.results import Columns

RECORDS: Final = 1_000_000
RECORDS_UNDER_KILL: Final = 200_000
VALUE_BYTES: Final = 100
PROGRESS_RECORDS: Final = 10_000
FETCH_BYTES: Final = 4 << 20
SILENCE_SECONDS_MAX: Final = 30.0
START_MS: Final = 1_700_000_000_000
PARTITION: Final = TopicPartition("demo", 0)
_READY: Final = re.compile(r"ready on (\S+:\d+);")
_ROW: Final = re.compile(r" *(\d+)  \S+ +(\d+)  ready$")
"""Of the table of brokers: its id and its process."""


class DemoFailed(Exception):  # noqa: N818
    """The broker does not do what it must."""


class Stopwatch:
    """How long a part of the story took, and how much was done in it."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._began = 0.0
        self.seconds = 0.0
        self.records = 0
        self.size_bytes = 0

    def __enter__(self) -> None:
        self._began = self._clock.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += self._clock.monotonic() - self._began

    def __str__(self) -> str:
        records_rate = f"{self.records / self.seconds:,.0f} records/s"
        bytes_rate = f"{human_bytes(int(self.size_bytes / self.seconds))}/s"
        return f"{plural(self.records, 'record')} in {self.seconds:.2f} s: {records_rate}, {bytes_rate}"


class BrokerProcess:
    """`barnabas up` in a process of its own, with one broker or several. A restart keeps the data and the ports."""

    def __init__(self, directory: Path, brokers: int = 1) -> None:
        self._directory = directory
        self._brokers = brokers
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[str] | None = None
        self._broker_pids: dict[int, int] = {}
        self.bootstrap = "127.0.0.1:0"

    def start(self) -> None:
        """Returns when it is ready."""
        command = [sys.executable, "-m", "barnabas.cli.main", "up", "--listen", self.bootstrap.partition(",")[0]]
        command += ["--data-dir", str(self._directory / "data")]
        if self._brokers > 1:
            command += ["--brokers", str(self._brokers)]
        with open(self._log, "a") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops its broker
            )
        assert self._process.stdout is not None, "it is a pipe"
        ready = _READY.search(self._process.stdout.readline())
        if ready is None:
            self.kill()
            raise DemoFailed(f"the broker did not start: {self._log.read_text().strip()}")
        self.bootstrap = ready[1]
        if self._brokers > 1:
            self._read_table(self._process.stdout)

    def _read_table(self, output: IO[str]) -> None:
        output.readline()  # the names of the columns
        rows = [_ROW.match(output.readline().rstrip()) for _ in range(self._brokers)]
        self._broker_pids = {int(row[1]): int(row[2]) for row in rows if row is not None}

    def kill_broker(self, broker_id: int) -> None:
        """One of several, once (SIGKILL): it is started again, by the process that started it."""
        os.kill(self._broker_pids.pop(broker_id), signal.SIGKILL)

    def stop(self) -> None:
        status = self._end(signal.SIGTERM)
        if status != 0:
            raise DemoFailed(f"the broker stopped with status {status}: {self._log.read_text().strip()}")

    def kill(self) -> None:
        """Several brokers are stopped by the process that started them, so that none stays behind."""
        self._end(signal.SIGKILL if self._brokers == 1 else signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        process.communicate()  # what it still says must not meet a closed pipe
        return process.returncode


# Records


def make_key(offset: Offset) -> bytes:
    return b"key-%09d" % offset


def make_value(offset: Offset) -> bytes:
    return (b"record %d " % offset).ljust(VALUE_BYTES, b".")


def check_records(first: Offset, columns: Columns) -> None:
    """`DemoFailed` unless these are exactly the records that belong at the offsets from `first` on."""
    offsets = range(first, first + columns.count)
    expected = {
        "offsets": array("q", offsets).tobytes(),
        "timestamps": array("q", [START_MS + offset for offset in offsets]).tobytes(),
        "key_data": b"".join(map(make_key, offsets)),
        "value_data": b"".join(map(make_value, offsets)),
    }
    for name, content in expected.items():
        if bytes(getattr(columns, name)) != content:
            raise DemoFailed(f"the {name} of the records from {first} on differ from what was produced")


# What is done with the broker


async def produce(
    cluster: Cluster,
    first: Offset,
    count: int,
    on_progress: Callable[[int], None],
    when_half_is_stored: Callable[[], None] | None = None,
) -> Stopwatch:
    """Produces the records that belong at these offsets; `when_half_is_stored` is called in the middle of that."""
    watch = Stopwatch()
    middle = first + count // 2
    helper: asyncio.Task[None] | None = None
    with watch:
        async with Producer(cluster) as producer:
            for offset in range(first, first + count):
                sent = await producer.send(
                    PARTITION.topic,
                    make_value(offset),
                    key=make_key(offset),
                    partition=PARTITION.partition,
                    timestamp_ms=START_MS + offset,
                )
                if (offset + 1) % PROGRESS_RECORDS == 0:
                    on_progress(PROGRESS_RECORDS)
                if offset == middle and when_half_is_stored is not None:
                    await sent
                    helper = asyncio.create_task(asyncio.to_thread(when_half_is_stored))
            if helper is not None:
                await helper
            await producer.flush()
    watch.records = count
    watch.size_bytes = count * (VALUE_BYTES + len(make_key(0)))
    return watch


async def consume(cluster: Cluster, first: Offset, count: int, on_progress: Callable[[int], None]) -> Stopwatch:
    """Consumes `count` records; `DemoFailed` unless they are the expected ones."""
    watch = Stopwatch()
    async with Consumer(cluster, ConsumerOptions(partition_bytes_max=FETCH_BYTES)) as consumer:
        consumer.assign({PARTITION: first})
        while watch.records < count:
            with watch:
                runs = await consumer.poll(SILENCE_SECONDS_MAX)
                decoded = [run.columns(with_headers=False) for run in runs]
            if not runs:
                raise DemoFailed(f"no records arrived from offset {first + watch.records} on")
            for run, columns in zip(runs, decoded, strict=True):
                check_records(first + watch.records, columns)
                watch.records += columns.count
                watch.size_bytes += len(run.batches)
                on_progress(columns.count)
    if watch.records != count:
        raise DemoFailed(f"{plural(watch.records, 'record')} arrived, but {count} were produced")
    return watch


# The story


async def run_demo(directory: Path) -> None:
    broker = BrokerProcess(directory)
    watch = Stopwatch()
    try:
        with watch:
            broker.start()
        say(f"1 started    a broker on {broker.bootstrap}, ready after {watch.seconds:.2f} s")
        async with Cluster(broker.bootstrap) as cluster:
            await Admin(cluster).create_topic(PARTITION.topic, partitions=1)
            with progress("producing", RECORDS, unit="records") as advance:
                produced = await produce(cluster, 0, RECORDS, advance)
            say(f"2 produced   {produced}")
            with progress("consuming", RECORDS, unit="records") as advance:
                consumed = await consume(cluster, 0, RECORDS, advance)
            say(f"3 consumed   {consumed}; every byte as produced")
            await survive_kill(broker, cluster)
        watch = Stopwatch()
        with watch:
            broker.stop()
        say(f"6 stopped    the broker, in {watch.seconds:.2f} s")
        say(f"All {plural(RECORDS + RECORDS_UNDER_KILL, 'record')} arrived, each once and in order.")
    finally:
        broker.kill()


async def survive_kill(broker: BrokerProcess, cluster: Cluster) -> None:
    restart = Stopwatch()

    def kill_and_start() -> None:
        broker.kill()
        with restart:
            broker.start()

    with progress("producing", RECORDS_UNDER_KILL, unit="records") as advance:
        await produce(cluster, RECORDS, RECORDS_UNDER_KILL, advance, kill_and_start)
    say(
        f"4 killed     the broker (SIGKILL) while {plural(RECORDS_UNDER_KILL, 'record')} were being produced; it was "
        f"ready again after {restart.seconds:.2f} s, and the producer went on"
    )
    with progress("consuming", RECORDS_UNDER_KILL, unit="records") as advance:
        consumed = await consume(cluster, RECORDS, RECORDS_UNDER_KILL, advance)
    say(f"5 consumed   {consumed}; none lost, none twice")


def main() -> int:
    logging.getLogger("barnabas").addHandler(logging.NullHandler())  # the story tells it all
    try:
        with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as directory:
            say(f"Barnabas produces and consumes records of {VALUE_BYTES} bytes; the data is in {directory}.")
            uvloop.run(run_demo(Path(directory)))
    except (DemoFailed, BarnabasError) as failure:
        complain(f"the demo failed: {failure}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
