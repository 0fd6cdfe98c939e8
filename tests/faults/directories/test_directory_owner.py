"""The owner of log directories beside its own worker threads, and beside another process that holds the lock."""

import os
import subprocess
import sys
import textwrap
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DirectoryLocked
from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.storage.work import Work
from tests.support.log_directories import EAGER, TOPIC_ID, append, open_manager, read_values, served

# Threads


def test_jobs_in_threads_beside_the_owner_keep_the_logs_whole(tmp_path: Path, clock: ManualClock) -> None:
    """The owner appends, cuts and deletes while flushes and checkpoints of the same logs run in workers."""
    files, paths, random = LocalFileSystem(), [os.fspath(tmp_path / name) for name in ("a", "b")], Random(11)
    manager, _ = open_manager(files, clock, paths)
    partitions = [TopicPartition("orders", number) for number in range(4)]
    for partition in partitions:
        manager.create(partition, TOPIC_ID, EAGER)
    running: list[tuple[Work, Future[None]]] = []
    with ThreadPoolExecutor(4) as executor:
        for epoch in range(150):
            partition = random.choice(partitions)
            log = served(manager, partition)
            append(log, *[b"x" * 200] * 3, leader_epoch=epoch)
            if random.random() < 0.2:
                manager.truncate(partition, random.randrange(log.log_start_offset, log.end_offset))
            if random.random() < 0.05:
                manager.delete(partition)
                manager.create(partition, TOPIC_ID, EAGER)
            clock.advance(2_500)
            running += [(work, executor.submit(work.run)) for work in manager.due_work(clock.now_ms())]
            for _ in range(random.randrange(len(running) + 1)):
                work, future = running.pop(random.randrange(len(running)))
                future.result()
                work.finish()
        for work, future in running:
            future.result()
            work.finish()
    assert manager.offline_directories == []
    manager.check_invariants()
    contents = {log.partition: (log.end_offset, read_values(log), log.epochs.entries) for log in manager}
    for directory in manager.directories:  # the process is gone, nothing was closed
        directory.release()
    again, report = open_manager(files, clock, paths)
    assert report.removed_bytes == 0
    assert {log.partition: (log.end_offset, read_values(log), log.epochs.entries) for log in again} == contents
    again.close()


# Somebody else


def test_lock_held_by_another_process_is_refused_with_one_clear_line(tmp_path: Path, clock: ManualClock) -> None:
    holder = textwrap.dedent(
        """
        import sys
        from barnabas.base.filesystem import LocalFileSystem
        lock = LocalFileSystem().lock(sys.argv[1] + "/.lock")
        print("locked", flush=True)
        sys.stdin.read()
        """
    )
    path = os.fspath(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", holder, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryLocked) as refusal:
            open_manager(LocalFileSystem(), clock, [path])
        process.kill()
    assert path in str(refusal.value)
    assert "\n" not in str(refusal.value)
    manager, _ = open_manager(LocalFileSystem(), clock, [path])
    manager.close()
