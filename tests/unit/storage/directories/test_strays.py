"""Which directories are served, removed or kept, by the topic ids in them."""

from random import Random
from uuid import UUID

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.filesystem import read_file
from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import new_uuid
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import PARTITION_METADATA, read_partition_metadata
from barnabas.storage.directories.directory import UnusableDirectory
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.directories.opening import OpeningReport
from barnabas.storage.directories.strays import Fate, KnownPartitions, is_damaged_copy
from tests.support.log_directories import EAGER, ORDERS, PAYMENTS, append, make_manager, open_manager, read_values

SOURCE = Random(5)
OWN, OTHER, DELETED = new_uuid(SOURCE), new_uuid(SOURCE), new_uuid(SOURCE)
A, B = "/a", "/b"
KNOWN = KnownPartitions({ORDERS: OWN}.get, frozenset({DELETED}), frozenset({"gone"}))


@pytest.mark.parametrize(
    ("partition", "stored_id", "fate"),
    [
        (ORDERS, OWN, Fate.SERVED),
        (ORDERS, UUID(int=OWN.int ^ 1 << 40), Fate.SERVED),
        (ORDERS, None, Fate.SERVED),
        (ORDERS, OTHER, Fate.STRAY),
        (ORDERS, DELETED, Fate.DELETED),
        (PAYMENTS, OTHER, Fate.STRAY),
        (PAYMENTS, OWN, Fate.STRAY),
        (PAYMENTS, None, Fate.STRAY),
        (PAYMENTS, DELETED, Fate.DELETED),
        (TopicPartition("orders", 1), OWN, Fate.STRAY),
    ],
)
def test_directory_is_served_by_its_topic_id(partition: TopicPartition, stored_id: UUID | None, fate: Fate) -> None:
    assert KNOWN.fate_of(partition, stored_id) is fate


def test_directory_without_an_id_is_stray_where_something_contradicts() -> None:
    known = KnownPartitions({ORDERS: OWN}.get, frozenset({DELETED}), frozenset({"orders"}))
    assert known.fate_of(ORDERS, None) is Fate.STRAY, "files of a deleted topic of this name may lie about"
    assert KNOWN.fate_of(ORDERS, None, is_rivalled=True) is Fate.STRAY
    assert KNOWN.fate_of(ORDERS, UUID(int=OWN.int ^ 1), is_rivalled=True) is Fate.STRAY


def test_no_other_id_is_taken_for_a_damaged_one() -> None:
    source = Random(1)
    assert not any(is_damaged_copy(new_uuid(source), OWN) for _ in range(10_000))
    assert all(is_damaged_copy(UUID(int=OWN.int ^ 1 << bit), OWN) for bit in range(128))


# In log directories


def opened(
    disk: SimulatedDisk, known: KnownPartitions | None, paths: tuple[str, ...] = (A, B)
) -> tuple[LogManager, OpeningReport]:
    manager = make_manager(disk, ManualClock(), paths)
    return manager, manager.open(lambda topic: EAGER, known=known)


def disk_with(**topic_ids: UUID | None) -> SimulatedDisk:
    """The partition orders-0 in several directories, each with a topic id and a record that names the directory."""
    disk = SimulatedDisk(Random(3))
    for name, topic_id in topic_ids.items():
        manager, _ = open_manager(disk, ManualClock(), [f"/{name}"])
        append(manager.create(ORDERS, topic_id, EAGER), name.encode())
        manager.close()
    return disk


def test_one_of_two_directories_is_served_by_its_id_and_the_other_kept() -> None:
    for own, other in (("a", "b"), ("b", "a")):
        disk = disk_with(**{own: OWN, other: OTHER})
        manager, report = opened(disk, KNOWN)
        log = manager.get(ORDERS, OWN)
        assert log is not None
        assert read_values(log) == [own.encode()]
        [stray] = report.strays
        assert stray.startswith(f"/{other}/orders-0.")
        assert manager.stray_count == 1
        manager.close()
        again, report = opened(disk.crash(), KNOWN)
        assert report.strays == [stray], "the rename was durable"
        assert again.stray_count == 1


def test_directory_without_an_id_gives_way_to_the_one_that_has_it() -> None:
    manager, report = opened(disk_with(a=None, b=OWN), KNOWN)
    log = manager.get(ORDERS, OWN)
    assert log is not None
    assert read_values(log) == [b"b"]
    assert len(report.strays) == 1


@pytest.mark.parametrize("ids", [{"a": OWN, "b": OWN}, {"a": None, "b": None}])
def test_two_directories_that_may_both_be_the_partitions_are_refused(ids: dict[str, UUID | None]) -> None:
    disk = disk_with(**ids)
    with pytest.raises(UnusableDirectory, match="orders-0 is both in /a and in /b"):
        opened(disk, KNOWN)
    assert disk.exists("/a/orders-0")
    assert disk.exists("/b/orders-0")


def test_directory_without_an_id_gets_it() -> None:
    disk = disk_with(a=None)
    manager, report = opened(disk, KNOWN, (A,))
    assert manager.get(ORDERS, OWN) is not None
    assert manager.topic_id(ORDERS) == OWN
    assert read_partition_metadata(disk, f"{A}/orders-0/{PARTITION_METADATA}") == OWN
    assert "missing or damaged" in report.repaired[0].notes[0]


def test_deleted_topic_is_removed_and_its_checkpoints_with_it() -> None:
    disk = disk_with(a=DELETED)
    manager, report = opened(disk, KNOWN, (A,))
    assert not report.strays
    assert len(manager) == 0
    assert b"orders" not in read_file(disk, f"{A}/recovery-point-offset-checkpoint")
    manager.run_due_work()
    assert not [name for name in disk.list(A) if name.startswith("orders")]


def test_created_partition_sets_aside_what_somebody_put_in_its_place() -> None:
    disk = SimulatedDisk(Random(3))
    manager, _ = opened(disk, KNOWN, (A,))
    disk.make_directory(f"{A}/orders-0/a-persons-files")
    append(manager.create(ORDERS, OWN, EAGER), b"new")
    assert [name for name in disk.list(A) if name.endswith("-stray")]


def test_creation_opens_what_was_set_aside_with_the_same_id() -> None:
    disk = disk_with(a=OTHER)
    manager, report = opened(disk, KnownPartitions(lambda partition: None))
    assert len(report.strays) == 1
    assert read_values(manager.create(ORDERS, OTHER, EAGER)) == [b"a"]
    assert manager.stray_count == 0
