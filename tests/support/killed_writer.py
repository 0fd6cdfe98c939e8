"""A process that writes to a log on the real disk and dies of SIGKILL in the middle of a call to the file system.

    python -m tests.support.killed_writer DIRECTORY STORY PATTERN COUNT

The COUNT-th call whose "method file-name" matches PATTERN never comes back; a write leaves half of its bytes. What the
log has confirmed goes to the standard output, a line each: `written END`, `flushed END`, `compacted END`. Both stories
are the same in every run, so whoever looks at the directory afterwards knows what may be in it.
"""

import os
import signal
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import count
from random import Random
from typing import Any

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import FileSystem, LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.records.batch import read_header
from barnabas.records.builder import BatchBuilder
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.log.log import Log
from barnabas.storage.log.recovery import RecoveryReport, open_log
from barnabas.storage.producers.producer_state import Origin
from barnabas.storage.segment.handles import Handles
from barnabas.storage.settings import LogConfig, LogManagerConfig
from barnabas.storage.work import perform
from tests.support.log_model import data_batch, marker_batch

PARTITION = TopicPartition("orders", 0)
LEADER_EPOCH = 4
NOW_MS = 1_700_000_000_000
STORIES = {
    "append": LogConfig(segment_bytes=2_000, index_interval_bytes=200),
    "compact": LogConfig(
        segment_bytes=2_000,
        index_interval_bytes=200,
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.0,
        file_delete_delay_ms=0,
    ),
}
KEYS = 7


class Fuse:
    def __init__(self, pattern: str, calls: int) -> None:
        self._pattern = pattern
        self._calls_left = calls

    def is_burnt(self, method: str, path: str) -> bool:
        if fnmatchcase(f"{method} {os.path.basename(path)}", self._pattern):
            self._calls_left -= 1
        return self._calls_left == 0


class Doomed:
    """A file system, or one of its files, every call of which may be the last."""

    def __init__(self, target: Any, fuse: Fuse) -> None:
        self._target = target
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **options: Any) -> Any:
            path = getattr(self._target, "path", None) or arguments[0]
            if self._fuse.is_burnt(name, path):
                if name == "write_at":
                    content = b"".join(arguments[0])
                    attribute([content[: len(content) // 2]], arguments[1])
                os.kill(os.getpid(), signal.SIGKILL)
            result = attribute(*arguments, **options)
            return Doomed(result, self._fuse) if name == "open" else result

        return call


def story_batches() -> Iterator[tuple[bytearray, Origin]]:
    """Batches without a producer, of an idempotent one, and of one whose transactions end in both ways."""
    sequences = {1: 0, 2: 0}
    for number in count():
        timestamps = [NOW_MS + number, NOW_MS + number - 3]
        producer_id = number % 3
        if number % 11 == 10:
            yield marker_batch(2, 0, NOW_MS + number, is_commit=number % 2 == 0), Origin.COORDINATOR
        elif producer_id == 0:
            yield data_batch(timestamps, number % 5 * 40), Origin.CLIENT
        else:
            batch = data_batch(
                timestamps,
                number % 7 * 20,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                is_transactional=producer_id == 2,
            )
            sequences[producer_id] += len(timestamps)
            yield batch, Origin.CLIENT


def keyed_batch(number: int) -> bytearray:
    """A record whose key comes again soon."""
    builder = BatchBuilder()
    builder.append(NOW_MS + number, b"key-%d" % (number % KEYS), b"value-%d" % number + bytes(100))
    return builder.build()


def open_story(files: FileSystem, directory: str, story: str, recovery_point: int = 0) -> tuple[Log, RecoveryReport]:
    return open_log(
        files,
        Handles(10),
        ManualClock(NOW_MS),
        Random(1),
        os.path.join(directory, str(PARTITION)),
        PARTITION,
        STORIES[story],
        recovery_point=recovery_point,
    )


def say(what: str, log: Log) -> None:
    os.write(1, f"{what} {log.end_offset}\n".encode())


def write_records(log: Log) -> None:
    """Tells the story from where the log has it."""
    offset, begin_offset = 0, log.end_offset
    for number, (batch, origin) in enumerate(story_batches()):
        offset += read_header(batch).count
        if offset <= begin_offset:
            continue
        log.append(batch, LEADER_EPOCH, origin)
        if number % 3 == 2:
            log.write()
            say("written", log)
        if number % 16 == 15:
            log.flush()
            say("flushed", log)


def write_and_compact(files: FileSystem, directory: str, log: Log) -> None:
    failures: list[DiskFailed] = []
    config = LogManagerConfig(log_cleaner_backoff_ms=0, log_cleaner_dedupe_buffer_size=1 << 16)
    cleaner = LogCleaner(files, ManualClock(NOW_MS), Random(2), config, lambda _, failure: failures.append(failure))
    for number in count():
        log.append(keyed_batch(number), LEADER_EPOCH)
        log.write()
        say("written", log)
        if number % 40 == 39:
            log.flush()
            say("flushed", log)
            log.advance_high_watermark(log.end_offset)
            while work := cleaner.next_job([log]):
                perform(work)
            for remove in log.doomed.take(NOW_MS):
                remove()
            assert not failures, failures
            say("compacted", log)


def main(directory: str, story: str, pattern: str, calls: int) -> None:
    files: Any = Doomed(LocalFileSystem(), Fuse(pattern, calls))
    log, _ = open_story(files, directory, story)
    if story == "append":
        write_records(log)
    else:
        write_and_compact(files, directory, log)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
