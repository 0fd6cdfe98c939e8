"""Processes that die of SIGKILL while they append, roll and compact, on the real disk."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest

from barnabas.base.filesystem import LocalFileSystem
from barnabas.records.batch import read_header
from barnabas.records.reader import read_records
from barnabas.storage.log.log import Log
from tests.support.killed_writer import LEADER_EPOCH, keyed_batch, open_story, story_batches
from tests.support.log_model import (
    ModelBatch,
    epochs_of,
    producer_agrees,
    producers_of,
    read_all,
    stored,
    transactions_of,
)

ROOT = Path(__file__).parents[2]
NEVER = "no such call"


@dataclass(frozen=True)
class Confirmed:
    """The last end offset that the process named, of each kind."""

    written: int = 0
    flushed: int = 0
    compacted: int = 0

    @classmethod
    def parse(cls, lines: list[bytes]) -> "Confirmed":
        return cls(**{what.decode(): int(end) for what, end in (line.split() for line in lines)})


def start_writer(directory: Path, story: str, pattern: str = NEVER, calls: int = 1) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.killed_writer", str(directory), story, pattern, str(calls)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def run_until_killed(directory: Path, story: str, pattern: str, calls: int) -> Confirmed:
    process = start_writer(directory, story, pattern, calls)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == -signal.SIGKILL
    return Confirmed.parse(output.splitlines())


def kill_after(directory: Path, story: str, lines: int) -> Confirmed:
    """Kills from outside, wherever the process is by then."""
    process = start_writer(directory, story)
    assert process.stdout is not None
    seen = [process.stdout.readline() for _ in range(lines)]
    process.kill()
    rest, _ = process.communicate(timeout=180)
    assert process.returncode == -signal.SIGKILL
    # A line may have been cut short by the kill.
    return Confirmed.parse([*seen, *(line for line in rest.splitlines(keepends=True) if line.endswith(b"\n"))])


def batches_of_the_story(end_offset: int) -> list[ModelBatch]:
    batches: list[ModelBatch] = []
    offset = 0
    for batch, _ in story_batches():
        if offset >= end_offset:
            return batches
        batches.append(stored(batch, offset, LEADER_EPOCH, None))
        offset = batches[-1].next_offset
    raise AssertionError("the story has no end")


def check_appended_log(directory: Path, confirmed: Confirmed, recovery_point: int) -> Log:
    log, _ = open_story(LocalFileSystem(), str(directory), "append", recovery_point)
    log.check_invariants()
    assert log.end_offset >= confirmed.written
    expected = batches_of_the_story(log.end_offset)
    assert read_all(log) == expected
    producers = producers_of(expected)
    assert {state.producer_id for state in log.producers} == producers.keys()
    assert all(producer_agrees(state, producers[state.producer_id]) for state in log.producers)
    aborted = [transaction.aborted for transaction in transactions_of(expected)[0] if transaction.aborted]
    assert log.aborted_transactions(0, log.end_offset) == aborted
    assert list(log.epochs.entries) == epochs_of(expected, 0)
    return log


def check_goes_on(directory: Path, log: Log) -> None:
    """The log takes the next records, stops cleanly and is whole."""
    next_batches = islice(story_batches(), len(batches_of_the_story(log.end_offset)), None)
    for batch, origin in islice(next_batches, 20):
        log.append(batch, LEADER_EPOCH, origin)
    log.close()
    check_appended_log(directory, Confirmed(written=log.end_offset), log.recovery_point)


IN_APPEND = [("write_at *.log", calls) for calls in (1, 2, 9, 40)]
IN_ROLL = [
    ("* *.snapshot", 1),
    ("write_at *.snapshot", 3),
    ("truncate *.snapshot", 2),
    ("open *.index", 8),
    ("truncate *.timeindex", 4),
    ("write_at *.timeindex", 2),
    ("write_at *.txnindex", 1),
    ("open *0.log", 3),
    ("truncate *.log", 5),
]
IN_FLUSH = [
    ("sync *.log", 2),
    ("sync *.snapshot", 1),
    ("write_at leader-epoch-checkpoint*", 1),
    ("rename leader-epoch-checkpoint*", 1),
    ("sync_directory *", 1),
    ("sync_directory *", 3),
]


@pytest.mark.parametrize(("pattern", "calls"), [*IN_APPEND, *IN_ROLL, *IN_FLUSH])
def test_writer_killed_in_a_call_keeps_everything_written(tmp_path: Path, pattern: str, calls: int) -> None:
    confirmed = run_until_killed(tmp_path, "append", pattern, calls)
    log = check_appended_log(tmp_path, confirmed, confirmed.flushed)
    check_goes_on(tmp_path, log)


@pytest.mark.parametrize("calls", [30, 150])
def test_writer_killed_without_a_checkpoint_keeps_everything_written(tmp_path: Path, calls: int) -> None:
    confirmed = run_until_killed(tmp_path, "append", "write_at *.log", calls)
    check_appended_log(tmp_path, confirmed, recovery_point=0)


@pytest.mark.parametrize("lines", [1, 30, 120])
def test_writer_killed_from_outside_keeps_everything_written(tmp_path: Path, lines: int) -> None:
    confirmed = kill_after(tmp_path, "append", lines)
    log = check_appended_log(tmp_path, confirmed, confirmed.flushed)
    check_goes_on(tmp_path, log)


def test_writer_killed_again_and_again_keeps_everything_written(tmp_path: Path) -> None:
    """Each process goes on with what the one before has left, and recovers it without a checkpoint."""
    end_offset = 0
    for calls in (20, 3, 45, 1, 33):
        confirmed = run_until_killed(tmp_path, "append", "write_at *.log", calls)
        log = check_appended_log(tmp_path, confirmed, recovery_point=0)
        assert log.end_offset >= end_offset
        end_offset = log.end_offset


def check_compacted_log(directory: Path, confirmed: Confirmed) -> None:
    log, _ = open_story(LocalFileSystem(), str(directory), "compact", confirmed.flushed)
    log.check_invariants()
    assert log.end_offset >= confirmed.written
    sent = {offset: next(read_records(keyed_batch(offset))) for offset in range(log.end_offset)}
    newest = {record.key: offset for offset, record in sent.items()}
    found = {record.offset: record for batch in read_all(log) for record in read_records(batch.content)}
    assert set(newest.values()) <= found.keys()
    assert all(record[:4] == sent[offset][:4] for offset, record in found.items())
    if confirmed.compacted:
        assert len(found) < log.end_offset
    log.close()
    again, report = open_story(LocalFileSystem(), str(directory), "compact", log.recovery_point)
    assert not report.notes
    assert again.end_offset == log.end_offset


IN_COMPACTION = [
    ("write_at *.log.cleaned", 1),
    ("write_at *.log.cleaned", 4),
    ("sync *.cleaned", 2),
    ("rename *.index.cleaned", 1),
    ("rename *.log.cleaned", 1),
    ("rename *.log.cleaned", 2),
    ("rename *.index", 1),
    ("rename *.log", 1),
    ("rename *.log", 3),
    ("rename *.timeindex.swap", 1),
    ("rename *.log.swap", 1),
    ("rename *.log.swap", 2),
    ("remove *.log.deleted", 1),
    ("remove *.log.deleted", 5),
    ("remove *.snapshot", 1),
    ("rename cleaner-offset-checkpoint*", 1),
]


@pytest.mark.parametrize(("pattern", "calls"), IN_COMPACTION)
def test_writer_killed_in_compaction_keeps_the_newest_of_every_key(tmp_path: Path, pattern: str, calls: int) -> None:
    check_compacted_log(tmp_path, run_until_killed(tmp_path, "compact", pattern, calls))


@pytest.mark.parametrize("lines", [41, 90])
def test_compacting_writer_killed_from_outside_keeps_the_newest_of_every_key(tmp_path: Path, lines: int) -> None:
    check_compacted_log(tmp_path, kill_after(tmp_path, "compact", lines))


def test_story_of_the_writer_has_every_kind_of_batch() -> None:
    headers = [read_header(batch) for batch, _ in islice(story_batches(), 40)]
    assert {(header.has_producer, header.is_transactional, header.is_control) for header in headers} == {
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (True, True, True),
    }
