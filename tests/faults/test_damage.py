"""Bytes that changed on the disk: every kind of file, flipped, torn, zeroed or gone, after a clean stop and a crash.

Opening never fails. What lies above the recovery point is checked and cut at the first bad batch; what can be derived
from the batches is derived again.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.storage.log.log import Log
from barnabas.storage.log.recovery import RecoveryReport, open_log
from barnabas.storage.segment.handles import Handles
from tests.support.killed_writer import LEADER_EPOCH, PARTITION, STORIES, open_story, story_batches
from tests.support.log_model import (
    ModelBatch,
    check_indexes,
    epochs_of,
    producer_agrees,
    producers_of,
    read_all,
    stored,
    transactions_of,
)

BATCHES = 60
FLUSHED_BATCHES = 30

Damage = Callable[[Path], None]


def flip(place: float) -> Damage:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(place * (len(content) - 1))] ^= 0x55
        path.write_bytes(content)

    return damage


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_three_bytes(path: Path) -> None:
    os.truncate(path, max(0, path.stat().st_size - 3))


def empty(path: Path) -> None:
    os.truncate(path, 0)


def zero_the_end(path: Path) -> None:
    content = path.read_bytes()
    kept = len(content) // 3
    path.write_bytes(content[:kept] + bytes(len(content) - kept))


def zero_everything(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def add_garbage(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\xa5" * 100)


DAMAGES: dict[str, Damage] = {
    "first byte flipped": flip(0),
    "byte in the middle flipped": flip(0.5),
    "last byte flipped": flip(1),
    "cut in half": cut_in_half,
    "end torn": cut_three_bytes,
    "emptied": empty,
    "end zeroed": zero_the_end,
    "zeroed": zero_everything,
    "followed by garbage": add_garbage,
    "removed": Path.unlink,
}
KINDS = [".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"]

each_damage = pytest.mark.parametrize("damage", DAMAGES)
each_kind = pytest.mark.parametrize("kind", KINDS)
each_age = pytest.mark.parametrize("is_newest", [True, False], ids=["newest", "oldest"])


@dataclass(frozen=True)
class Written:
    """A log that was stopped or abandoned, to be copied."""

    directory: Path
    batches: list[ModelBatch]
    recovery_point: int

    def copy_to(self, directory: Path) -> tuple[list[ModelBatch], int]:
        shutil.copytree(self.directory, directory, dirs_exist_ok=True)
        return self.batches, self.recovery_point


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return written_log(tmp_path_factory.mktemp("stopped"), is_clean=True)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return written_log(tmp_path_factory.mktemp("crashed"), is_clean=False)


def written_log(directory: Path, *, is_clean: bool) -> Written:
    log, _ = open_story(LocalFileSystem(), str(directory), "append")
    batches: list[ModelBatch] = []
    for number, (batch, origin) in enumerate(islice(story_batches(), BATCHES)):
        batches.append(stored(batch, log.end_offset, LEADER_EPOCH, None))
        log.append(batch, LEADER_EPOCH, origin)
        log.write()
        if number == FLUSHED_BATCHES:
            log.flush()
    if is_clean:
        log.close()
    else:
        for segment in log.segments:
            segment.store_indexes()
    assert len(log.segments) > 3
    return Written(directory, batches, log.recovery_point)


def damaged_file(directory: Path, kind: str, *, is_newest: bool) -> Path:
    paths = sorted(path for path in (directory / str(PARTITION)).iterdir() if path.name.endswith(kind))
    paths = [path for path in paths if path.stat().st_size]
    return paths[-1 if is_newest else 0]


def reopened(directory: Path, recovery_point: int, *, was_clean: bool) -> tuple[Log, RecoveryReport]:
    return open_log(
        LocalFileSystem(),
        Handles(),
        ManualClock(),
        Random(1),
        str(directory / str(PARTITION)),
        PARTITION,
        STORIES["append"],
        recovery_point=recovery_point,
        was_clean=was_clean,
    )


def check_is_prefix(log: Log, batches: list[ModelBatch]) -> None:
    """The log is whole in itself, and everything in it follows from the first batches."""
    log.check_invariants()
    kept = [batch for batch in batches if batch.next_offset <= log.end_offset]
    assert log.end_offset == (kept[-1].next_offset if kept else 0)
    assert read_all(log) == kept
    check_indexes(log, kept)
    producers = producers_of(kept)
    assert {state.producer_id for state in log.producers} == producers.keys()
    assert all(producer_agrees(state, producers[state.producer_id]) for state in log.producers)
    aborted = [transaction.aborted for transaction in transactions_of(kept)[0] if transaction.aborted]
    assert log.aborted_transactions(0, log.end_offset) == aborted
    assert list(log.epochs.entries) == epochs_of(kept, 0)


@each_damage
@each_kind
def test_crashed_log_with_damage_above_the_recovery_point_is_a_prefix(
    crashed: Written, tmp_path: Path, kind: str, damage: str
) -> None:
    batches, recovery_point = crashed.copy_to(tmp_path)
    DAMAGES[damage](damaged_file(tmp_path, kind, is_newest=True))
    log, report = reopened(tmp_path, recovery_point, was_clean=False)
    check_is_prefix(log, batches)
    assert log.end_offset >= recovery_point
    if kind != ".log":
        assert log.end_offset == batches[-1].next_offset
    elif damage != "removed":  # then the log ends with the segment before
        assert report.removed_bytes or damage in ("cut in half", "end torn", "emptied")
    log.flush()
    again, report = reopened(tmp_path, recovery_point, was_clean=False)
    assert not report.notes
    check_is_prefix(again, batches)


@each_damage
@each_kind
def test_crashed_log_without_a_recovery_point_is_a_prefix(
    crashed: Written, tmp_path: Path, kind: str, damage: str
) -> None:
    batches, _ = crashed.copy_to(tmp_path)
    path = damaged_file(tmp_path, kind, is_newest=False)
    DAMAGES[damage](path)
    log, _ = reopened(tmp_path, 0, was_clean=False)
    if (kind, damage) == (".log", "removed"):  # nobody can tell that there was a first segment
        assert log.log_start_offset > 0
    else:
        check_is_prefix(log, batches)


@each_damage
@each_age
@pytest.mark.parametrize("kind", [".snapshot", "leader-epoch-checkpoint"])
def test_stopped_log_with_damaged_knowledge_works_it_out_again(
    stopped: Written, tmp_path: Path, kind: str, is_newest: bool, damage: str
) -> None:
    batches, recovery_point = stopped.copy_to(tmp_path)
    assert recovery_point == batches[-1].next_offset
    DAMAGES[damage](damaged_file(tmp_path, kind, is_newest=is_newest))
    log, _ = reopened(tmp_path, recovery_point, was_clean=True)
    assert log.end_offset == recovery_point
    if kind == ".snapshot" or "flipped" not in damage:  # a flipped digit of a checkpoint is another number
        check_is_prefix(log, batches)


@each_damage
@each_age
@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
def test_stopped_log_with_a_damaged_index_keeps_its_records(
    stopped: Written, tmp_path: Path, kind: str, is_newest: bool, damage: str
) -> None:
    batches, recovery_point = stopped.copy_to(tmp_path)
    DAMAGES[damage](damaged_file(tmp_path, kind, is_newest=is_newest))
    log, report = reopened(tmp_path, recovery_point, was_clean=True)
    assert log.end_offset == batches[-1].next_offset
    assert not report.removed_bytes
    assert read_all(log) == batches
    aborted = [transaction.aborted for transaction in transactions_of(batches)[0] if transaction.aborted]
    if damage not in ("emptied", "removed"):  # most segments have no such index
        found = log.aborted_transactions(0, log.end_offset)
        assert [one[:3] for one in found] == [one[:3] for one in aborted], "a stable offset too low only costs time"


@each_damage
@each_age
@pytest.mark.parametrize("was_clean", [True, False], ids=["stopped", "crashed"])
def test_log_with_damaged_records_below_the_recovery_point_opens(
    stopped: Written, tmp_path: Path, is_newest: bool, damage: str, was_clean: bool
) -> None:
    batches, recovery_point = stopped.copy_to(tmp_path)
    DAMAGES[damage](damaged_file(tmp_path, ".log", is_newest=is_newest))
    log, _ = reopened(tmp_path, recovery_point, was_clean=was_clean)
    log.check_invariants()
    assert log.end_offset <= batches[-1].next_offset


def test_log_with_every_index_and_snapshot_removed_is_whole(stopped: Written, tmp_path: Path) -> None:
    batches, recovery_point = stopped.copy_to(tmp_path)
    for path in (tmp_path / str(PARTITION)).iterdir():
        if path.suffix != ".log":
            path.unlink()
    log, _ = reopened(tmp_path, recovery_point, was_clean=True)
    check_is_prefix(log, batches)
    assert log.end_offset == batches[-1].next_offset
