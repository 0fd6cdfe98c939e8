"""`python -m barnabas.cli.demo` (`make run`): what the log can do, on a million records and in half a minute.

1. writes a million records to a new log;
2. reads them back and compares every byte;
3. starts another process that goes on writing, and kills it (SIGKILL) in the middle of that;
4. opens what is left, as after any crash, and compares again: everything that was flushed must be there, and what else
   survived must be a prefix of what was written.

Each record can be made again from its offset alone, so nothing has to be remembered to compare. The log lies in a
temporary directory that is removed at the end.
"""

import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from barnabas.base.clock import SystemClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import Offset, TopicPartition
from barnabas.cli.output import console, human_bytes, plural, progress, say
from barnabas.records import kernel
from barnabas.records.columns import decode_run, encode_batches
from barnabas.records.results import Columns
from barnabas.storage.handles import Handles
from barnabas.storage.log import Log
from barnabas.storage.recovery import RecoveryReport, open_log
from barnabas.storage.settings import LogConfig

RECORDS: Final = 1_000_000
VALUE_BYTES: Final = 100
BATCH_BYTES: Final = 128 * 1024
SEGMENT_BYTES: Final = 32 << 20
CHUNK_RECORDS: Final = 20_000
WRITE_CHUNKS: Final = 10
"""The doomed process hands so many chunks to the disk at once, so that the kill falls into a write."""
WRITES_MAX: Final = 50
FLUSHES_BEFORE_KILL: Final = 1
READ_BYTES: Final = 4 << 20
START_MS: Final = 1_700_000_000_000
PARTITION: Final = TopicPartition("demo", 0)
_WRITER_ARGUMENT: Final = "--write-until-killed"


class DemoFailed(Exception):  # noqa: N818
    """The log does not hold what it must."""


class Stopwatch:
    """Adds up what the log takes for its work; making and comparing the records is not its work."""

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


def make_records(first: Offset, count: int) -> Columns:
    """The records that belong at these offsets, as columns."""
    keys = b"".join(b"key-%09d" % offset for offset in range(first, first + count))
    values = b"".join((b"record %d " % offset).ljust(VALUE_BYTES, b".") for offset in range(first, first + count))
    key_bytes = len(keys) // count
    no_headers = bytes(4)
    return Columns(
        count=count,
        offsets=array("q", range(first, first + count)).tobytes(),
        timestamps=array("q", range(START_MS + first, START_MS + first + count)).tobytes(),
        key_offsets=array("i", range(0, len(keys) + 1, key_bytes)).tobytes(),
        key_data=keys,
        key_validity=None,
        value_offsets=array("i", range(0, len(values) + 1, VALUE_BYTES)).tobytes(),
        value_data=values,
        value_validity=None,
        header_list_offsets=bytes(4 * (count + 1)),
        header_key_offsets=no_headers,
        header_key_data=b"",
        header_value_offsets=no_headers,
        header_value_data=b"",
        header_value_validity=None,
    )


def open_demo_log(directory: str, recovery_point: Offset = 0) -> tuple[Log, RecoveryReport]:
    config = LogConfig(segment_bytes=SEGMENT_BYTES)
    return open_log(
        LocalFileSystem(),
        Handles(),
        SystemClock(),
        random.Random(),
        directory,
        PARTITION,
        config,
        recovery_point=recovery_point,
    )


def append_records(log: Log, records: Columns) -> int:
    """Stages the records in batches; returns their size."""
    size_bytes = 0
    for batch in encode_batches(records, max_batch_bytes=BATCH_BYTES):
        log.append(memoryview(batch), leader_epoch=0)
        size_bytes += len(batch)
    return size_bytes


def write_records(log: Log, count: int, on_progress: Callable[[int], None]) -> Stopwatch:
    watch = Stopwatch()
    for _ in range(0, count, CHUNK_RECORDS):
        records = make_records(log.end_offset, CHUNK_RECORDS)
        with watch:
            watch.size_bytes += append_records(log, records)
            log.write()
        watch.records += CHUNK_RECORDS
        on_progress(CHUNK_RECORDS)
    with watch:
        log.flush()
    return watch


def compare_records(log: Log, on_progress: Callable[[int], None]) -> Stopwatch:
    """Reads the whole log; `DemoFailed` unless it holds exactly the records that belong there."""
    watch = Stopwatch()
    next_offset = log.log_start_offset
    while next_offset < log.end_offset:
        with watch:
            found = log.read(next_offset, READ_BYTES).slice
            if found is None:
                raise DemoFailed(f"nothing can be read at offset {next_offset}, but the log ends at {log.end_offset}")
            columns, consumed_bytes = decode_run(found.read())
            found.release()
        expected = make_records(next_offset, columns.count)
        for name in ("offsets", "timestamps", "key_offsets", "key_data", "value_offsets", "value_data"):
            if bytes(getattr(columns, name)) != bytes(getattr(expected, name)):
                raise DemoFailed(f"the {name} of the records from {next_offset} on are not what was written")
        next_offset += columns.count
        watch.records += columns.count
        watch.size_bytes += consumed_bytes
        on_progress(columns.count)
    return watch


# The process that is killed


def write_until_killed(directory: str) -> None:
    """Appends until somebody ends it, or many times; tells on standard output up to where it has flushed."""
    log, _ = open_demo_log(directory)
    for _ in range(WRITES_MAX):
        for _ in range(WRITE_CHUNKS):
            append_records(log, make_records(log.staged_end_offset, CHUNK_RECORDS))
        log.write()
        log.flush()
        print(log.end_offset, flush=True)


def crash_writer(directory: str) -> Offset:
    """Runs a writer and kills it while it writes; returns the offset up to which it had flushed."""
    command = [sys.executable, "-m", "barnabas.cli.demo", _WRITER_ARGUMENT, directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer, ExitStack() as stack:
        stack.callback(writer.kill)
        assert writer.stdout is not None
        flushed = 0
        for _ in range(FLUSHES_BEFORE_KILL):
            line = writer.stdout.readline()
            if not line:
                raise DemoFailed("the writing process ended by itself")
            flushed = int(line)
        # When a file grows after that flush, the next write is under way.
        size_bytes = _log_bytes(directory)
        while _log_bytes(directory) == size_bytes and writer.poll() is None:
            SystemClock().sleep(0.0001)
        writer.send_signal(signal.SIGKILL)
        for line in writer.stdout:
            flushed = int(line)
    return flushed


def _log_bytes(directory: str) -> int:
    with os.scandir(directory) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))


# The story


def run_demo(directory: str) -> None:
    say(f"Barnabas writes {plural(RECORDS, 'record')} of {VALUE_BYTES} bytes to a log in {directory}.")
    if not kernel.IS_COMPILED:
        say("The compiled record kernel is not installed: its Python reference is used, which takes longer.")
    log, _ = open_demo_log(directory)
    with progress("writing", RECORDS, unit="records") as advance:
        written = write_records(log, RECORDS, advance)
    say(f"1 wrote      {written}")
    with progress("reading", RECORDS, unit="records") as advance:
        read = compare_records(log, advance)
    say(f"2 read back  {read}; every byte as written")
    log.close()
    flushed = crash_writer(directory)
    say(f"3 crashed    a second process was killed in mid-append; it had flushed up to offset {flushed:,}")
    recover_and_compare(directory, flushed)


def recover_and_compare(directory: str, flushed: Offset) -> None:
    watch = Stopwatch()
    with watch:
        log, report = open_demo_log(directory, recovery_point=flushed)
    say(
        f"4 recovered  in {watch.seconds:.3f} s; checked {human_bytes(report.checked_bytes)} from the recovery point on"
    )
    for note in report.notes or ["nothing had to be cut: the last write was whole"]:
        say(f"             {note}")
    if log.end_offset < flushed:
        raise DemoFailed(f"the log ends at {log.end_offset}, but it was flushed up to {flushed}")
    with progress("comparing", log.end_offset, unit="records") as advance:
        compared = compare_records(log, advance)
    say(f"5 compared   {compared}; every byte as written")
    log.close()
    say(
        f"All {plural(flushed, 'flushed record')} survived, and {log.end_offset - flushed:,} that were not flushed. Of "
        f"the torn write {human_bytes(report.removed_bytes)} were cut; the log goes on at offset {log.end_offset:,}."
    )


def main() -> int:
    logging.getLogger("barnabas").addHandler(logging.NullHandler())  # the story tells it all
    try:
        if sys.argv[1:2] == [_WRITER_ARGUMENT]:
            write_until_killed(sys.argv[2])
            return 0
        with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as directory:
            run_demo(os.path.join(directory, str(PARTITION)))
    except DemoFailed as failure:
        console(on_error_stream=True).print(f"barnabas: the demo failed: {failure}", style="red")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
