"""One log directory: whose it is, what lies in it, its checkpoints."""

import errno
import os
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DirectoryLocked, DiskFailed
from barnabas.base.filesystem import LocalFileSystem, read_file, replace_file
from barnabas.base.ids import TopicPartition
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import CLEAN_SHUTDOWN, CorruptCheckpoint, encode_offsets, read_offsets
from barnabas.storage.directories.directory import (
    CheckpointFile,
    LogDirectory,
    UnusableDirectory,
    doomed_name,
    parse_partition,
    partition_set_aside,
    stray_name,
)
from barnabas.storage.directories.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from tests.support.log_directories import CLUSTER_ID, ORDERS, ORDERS_1

DATA = "/data/logs"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(7), clock=ManualClock(), strict=True)


def claimed(disk: SimulatedDisk, path: str = DATA) -> LogDirectory:
    directory = LogDirectory(disk, path)
    directory.claim(CLUSTER_ID, 1, Random(1))
    return directory


# Names


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a-b.c_d-12", TopicPartition("a-b.c_d", 12)),
        ("orders-2147483647", TopicPartition("orders", 2147483647)),
        ("orders-2147483648", None),
        ("orders-00", None),
        ("orders-+1", None),
        ("orders-\u0663", None),
        ("orders", None),
        ("-0", None),
        (".-0", None),
        ("lost+found", None),
        ("or ders-0", None),
        ("x" * 249 + "-0", TopicPartition("x" * 249, 0)),
        ("x" * 250 + "-0", None),
    ],
)
def test_directory_name_is_a_partition_or_nothing(name: str, partition: TopicPartition | None) -> None:
    assert parse_partition(name) == partition


def test_doomed_name_of_long_topic_fits_into_a_file_name() -> None:
    unique = UUID(int=5)
    assert doomed_name(ORDERS, unique) == f"orders-0.{unique.hex}-delete"
    assert len(doomed_name(TopicPartition("x" * 249, 1234567890), unique)) == 255


def test_name_of_directory_that_was_set_aside_tells_its_partition_unless_it_was_cut() -> None:
    unique = UUID(int=5)
    assert stray_name(ORDERS, unique) == f"orders-0.{unique.hex}-stray"
    assert partition_set_aside(stray_name(ORDERS, unique)) == ORDERS
    assert partition_set_aside(stray_name(TopicPartition("x" * 249, 0), unique)) is None
    assert partition_set_aside("orders-0") is None


def test_listing_sorts_directories_by_their_names(disk: SimulatedDisk) -> None:
    for name in (
        "orders-0", "orders-1", "orders-2.00ff-delete", "orders-3.00ff-future", "orders-4.00ff-stray",
        "__cluster_metadata-0", "lost+found", "orders-5-delete",
    ):  # fmt: skip
        disk.make_directory(f"{DATA}/{name}")
    replace_file(disk, f"{DATA}/bootstrap.checkpoint", b"kraft")
    replace_file(disk, f"{DATA}/orders-9", b"a file, not a partition")
    listing = LogDirectory(disk, DATA).list()
    assert listing.partitions == [ORDERS, ORDERS_1]
    assert listing.doomed == ["orders-2.00ff-delete"]
    assert listing.set_aside == ["orders-3.00ff-future"]
    assert listing.strays == ["orders-4.00ff-stray"]
    assert listing.malformed == ["lost+found", "orders-5-delete"]


# Whose it is


def test_claim_of_new_directory_makes_it_this_nodes_durably(disk: SimulatedDisk) -> None:
    directory = claimed(disk)
    meta = read_meta_properties(disk.crash(), f"{DATA}/meta.properties")
    assert meta == MetaProperties(CLUSTER_ID, 1, directory.directory_id)
    assert directory.directory_id is not None


def test_claim_again_keeps_the_directory_id(disk: SimulatedDisk) -> None:
    first = claimed(disk)
    first.release()
    assert claimed(disk).directory_id == first.directory_id


def test_claim_of_version_0_completes_it(disk: SimulatedDisk) -> None:
    disk.make_directory(DATA)
    replace_file(disk, f"{DATA}/meta.properties", b"version=0\nbroker.id=1\n")
    directory = claimed(disk)
    assert read_file(disk, f"{DATA}/meta.properties").count(b"node.id=1") == 1
    assert read_meta_properties(disk, f"{DATA}/meta.properties") == MetaProperties(
        CLUSTER_ID, 1, directory.directory_id
    )


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        (MetaProperties("anotherCluster", 1, UUID(int=9)), "belongs to cluster anotherCluster"),
        (MetaProperties(CLUSTER_ID, 2, UUID(int=9)), "belongs to node 2, this is node 1"),
    ],
)
def test_claim_of_foreign_directory_is_refused_and_touches_nothing(
    disk: SimulatedDisk, meta: MetaProperties, words: str
) -> None:
    disk.make_directory(DATA)
    write_meta_properties(disk, f"{DATA}/meta.properties", meta)
    before = disk.list(DATA)
    with pytest.raises(UnusableDirectory, match=words):
        claimed(disk)
    assert read_meta_properties(disk, f"{DATA}/meta.properties") == meta
    assert disk.list(DATA) == before


def test_claim_with_damaged_meta_properties_is_refused(disk: SimulatedDisk) -> None:
    disk.make_directory(DATA)
    replace_file(disk, f"{DATA}/meta.properties", b"version=7\n")
    with pytest.raises(CorruptCheckpoint, match="version '7'"):
        claimed(disk)


def test_claim_of_locked_directory_is_refused(tmp_path: Path) -> None:
    files = LocalFileSystem()
    first = LogDirectory(files, os.fspath(tmp_path))
    first.claim(CLUSTER_ID, 1, Random(1))
    with pytest.raises(DirectoryLocked, match="in use"):
        LogDirectory(files, os.fspath(tmp_path)).claim(CLUSTER_ID, 1, Random(1))
    first.release()
    LogDirectory(files, os.fspath(tmp_path)).claim(CLUSTER_ID, 1, Random(1))


# The mark of a clean stop


def test_clean_mark_is_read_once_and_gone_after_a_crash(disk: SimulatedDisk) -> None:
    directory = claimed(disk)
    directory.mark_clean(42)
    directory.release()
    again = claimed(disk)
    again.begin()
    assert again.clean_shutdown is not None
    assert again.clean_shutdown.broker_epoch == 42
    crashed = disk.crash()
    assert not crashed.exists(f"{DATA}/{CLEAN_SHUTDOWN}")
    after = claimed(crashed)
    after.begin()
    assert after.clean_shutdown is None


def test_damaged_checkpoint_counts_as_none(disk: SimulatedDisk, caplog: pytest.LogCaptureFixture) -> None:
    directory = claimed(disk)
    replace_file(disk, directory.recovery_points.path, b"0\n1\n")
    replace_file(disk, directory.start_offsets.path, encode_offsets({ORDERS: 5}))
    directory.begin()
    assert directory.recovery_points.found == {}
    assert directory.start_offsets.found == {ORDERS: 5}
    assert "continuing without a checkpoint" in caplog.text


# Checkpoint files


@pytest.fixture
def checkpoint(disk: SimulatedDisk) -> CheckpointFile:
    disk.make_directory(DATA)
    disk.sync_directory("/")
    disk.sync_directory("/data")
    return CheckpointFile(disk, f"{DATA}/offsets")


def test_checkpoint_written_late_does_not_undo_a_newer_one(disk: SimulatedDisk, checkpoint: CheckpointFile) -> None:
    older = checkpoint.prepare({ORDERS: 100})
    newer = checkpoint.prepare({ORDERS: 50})
    checkpoint.write(newer)
    checkpoint.write(older)
    assert read_offsets(disk.crash(), checkpoint.path) == {ORDERS: 50}


def test_checkpoint_is_news_only_when_it_differs(disk: SimulatedDisk, checkpoint: CheckpointFile) -> None:
    assert checkpoint.is_news({})
    checkpoint.write(checkpoint.prepare({ORDERS: 1}))
    assert not checkpoint.is_news({ORDERS: 1})
    assert checkpoint.is_news({ORDERS: 2})


def test_checkpoint_that_could_not_be_written_stays_news(disk: SimulatedDisk, checkpoint: CheckpointFile) -> None:
    version = checkpoint.prepare({ORDERS: 1})
    disk.fail(errno.EIO, operations=["write"])
    with pytest.raises(DiskFailed):
        checkpoint.write(version)
    assert checkpoint.is_news({ORDERS: 1})
    checkpoint.write(version)
    assert read_offsets(disk, checkpoint.path) == {ORDERS: 1}


def test_lowering_on_full_disk_removes_the_file_durably(disk: SimulatedDisk, checkpoint: CheckpointFile) -> None:
    checkpoint.write(checkpoint.prepare({ORDERS: 100}))
    older = checkpoint.prepare({ORDERS: 90})
    disk.fail(errno.ENOSPC, operations=["write"])
    checkpoint.lower(checkpoint.prepare({ORDERS: 50}))
    checkpoint.write(older)
    assert read_offsets(disk.crash(), checkpoint.path) == {}
    assert checkpoint.is_news({ORDERS: 50})
