"""What log directories remember of a broker's registrations, and when its logs are called intact."""

import errno
from uuid import UUID

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import read_file, replace_file
from barnabas.base.machine import UNKNOWN_BOOT
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.directories.registrations import (
    LastRegistration,
    Past,
    Remembered,
    decode_registration,
    encode_registration,
    past_of,
)
from barnabas.storage.work import perform
from tests.support.log_directories import LAZY, ORDERS, TOPIC_ID, A, B, append, make_manager, open_manager, served

FIRST, SECOND, THIRD = (UUID(int=number) for number in (1, 2, 3))
BOOT, NEXT_BOOT = "boot-1", "boot-2"


def registration(epoch: int = 21, *directories: UUID, since: int = 15) -> LastRegistration:
    return LastRegistration(epoch, since, BOOT, directories or (FIRST, SECOND))


LAST = registration()


def found(directory: UUID = FIRST, last: LastRegistration | None = LAST, clean: int | None = None) -> Remembered:
    return Remembered(directory, last, clean)


@pytest.mark.parametrize(
    ("remembered", "boot_id", "expected"),
    [
        pytest.param([found(FIRST, None)], BOOT, Past(None, None), id="first start"),
        pytest.param([found(), found(SECOND)], BOOT, Past(21, 15), id="killed"),
        pytest.param([found(), found(SECOND)], NEXT_BOOT, Past(21, None), id="power loss"),
        pytest.param([found(clean=21), found(SECOND, clean=21)], NEXT_BOOT, Past(21, 15), id="stopped cleanly"),
        pytest.param([found(clean=21), found(SECOND)], NEXT_BOOT, Past(21, None), id="one directory not clean"),
        pytest.param([found(clean=20), found(SECOND, clean=20)], NEXT_BOOT, Past(21, None), id="mark of another stop"),
        pytest.param([found()], BOOT, Past(21, None), id="one directory missing"),
        pytest.param([found(), found(THIRD, None)], BOOT, Past(21, None), id="one directory replaced"),
        pytest.param([found(), found(SECOND), found(THIRD, None)], BOOT, Past(21, 15), id="one directory added"),
        pytest.param([found(), found(SECOND, registration(9))], BOOT, Past(21, None), id="one was away last time"),
        pytest.param([found(), found(SECOND, None)], BOOT, Past(21, None), id="one failed"),
    ],
)
def test_logs_are_intact_only_when_that_is_proved(remembered: list[Remembered], boot_id: str, expected: Past) -> None:
    assert past_of(remembered, boot_id) == expected


def test_no_boot_is_the_same_on_a_machine_that_does_not_tell() -> None:
    last = LastRegistration(21, 15, UNKNOWN_BOOT, (FIRST,))
    assert past_of([found(FIRST, last)], UNKNOWN_BOOT) == Past(21, None)
    assert past_of([found(FIRST, last, clean=21)], UNKNOWN_BOOT) == Past(21, 15)


def test_what_is_remembered_is_read_again() -> None:
    last = registration(1 << 60)
    assert decode_registration(encode_registration(last)) == last


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\0" * 40, b'{"version": 2}', b'{"version": 1}'])
def test_a_damaged_file_proves_nothing(content: bytes) -> None:
    assert decode_registration(content) is None


# -- with directories ------------------------------------------------------------------------------------------------


def opened(disk: SimulatedDisk, clock: ManualClock, boot_id: str = BOOT) -> LogManager:
    return open_manager(disk, clock, [A, B], config=LAZY, manager_options={"boot_id": boot_id})[0]


def register(manager: LogManager, epoch: int) -> None:
    for work in manager.remembering(epoch):
        perform(work)


@pytest.fixture
def registered(disk: SimulatedDisk, clock: ManualClock) -> LogManager:
    """In its second life, with a log; registered with epochs 5 and 7."""
    first = opened(disk, clock)
    assert first.registrations.past == Past(None, None)
    append(first.create(ORDERS, TOPIC_ID, LAZY), b"one", b"two")
    register(first, 5)
    first.close()
    manager = opened(disk, clock)
    assert manager.registrations.past == Past(5, 5)
    register(manager, 7)
    return manager


def test_clean_stop_proves_it_after_any_time(disk: SimulatedDisk, clock: ManualClock, registered: LogManager) -> None:
    append(served(registered, ORDERS), b"three")
    registered.close()
    assert opened(disk.crash(loses_all=True), clock, NEXT_BOOT).registrations.past == Past(7, 5)


def test_kill_loses_nothing(disk: SimulatedDisk, clock: ManualClock, registered: LogManager) -> None:
    append(served(registered, ORDERS), b"three")
    assert opened(disk.kill(), clock).registrations.past == Past(7, 5)


def test_store_whose_epochs_went_back_knows_nothing_of_the_past(
    disk: SimulatedDisk, clock: ManualClock, registered: LogManager
) -> None:
    registered.close()
    manager = opened(disk, clock)
    assert manager.registrations.past == Past(7, 5)
    register(manager, 3)
    assert manager.registrations.past == Past(3, 3)
    manager.close()
    assert opened(disk, clock).registrations.past == Past(3, 3)


@pytest.mark.parametrize("loses_all", [False, True])
def test_power_loss_proves_nothing(
    disk: SimulatedDisk, clock: ManualClock, registered: LogManager, *, loses_all: bool
) -> None:
    append(served(registered, ORDERS), b"three")
    past = opened(disk.crash(loses_all=loses_all), clock, NEXT_BOOT).registrations.past
    assert past.intact_since is None


def test_what_was_lost_once_is_lost_for_all_that_follow(
    disk: SimulatedDisk, clock: ManualClock, registered: LogManager
) -> None:
    dark = disk.crash()
    manager = opened(dark, clock, NEXT_BOOT)
    register(manager, 9)
    assert manager.registrations.past == Past(9, 9)
    manager.close()
    assert opened(dark, clock, NEXT_BOOT).registrations.past == Past(9, 9)


def test_failed_sync_is_remembered_through_a_clean_stop(
    disk: SimulatedDisk, clock: ManualClock, registered: LogManager
) -> None:
    disk.fail(errno.EIO, operations=["sync"])
    append(served(registered, ORDERS), b"three")
    clock.advance(10**9)
    registered.close()
    again = opened(disk, clock)
    assert again.registrations.past.intact_since is None


def test_directory_that_failed_is_remembered_by_the_others(
    disk: SimulatedDisk, clock: ManualClock, registered: LogManager
) -> None:
    disk.fail(errno.EIO, operations=["write"])
    log = served(registered, ORDERS)
    with pytest.raises(DiskFailed) as raised:
        append(log, b"three")
    registered.on_log_failure(ORDERS, raised.value)
    assert registered.registrations.past == Past(7, None)
    register(registered, 8)
    assert registered.registrations.past == Past(8, 8)
    registered.close()
    assert opened(disk, clock).registrations.past == Past(8, 8)


def test_log_that_had_to_be_cut_is_not_intact(disk: SimulatedDisk, clock: ManualClock, registered: LogManager) -> None:
    append(served(registered, ORDERS), b"three")
    killed = disk.kill()
    [path] = [f"{place}/orders-0/{0:020d}.log" for place in (A, B) if killed.exists(f"{place}/orders-0")]
    content = bytearray(read_file(killed, path))
    content[content.index(b"three")] ^= 1
    replace_file(killed, path, bytes(content))
    assert opened(killed, clock).registrations.past == Past(7, None)


def test_directory_that_was_replaced_is_missed(disk: SimulatedDisk, clock: ManualClock, registered: LogManager) -> None:
    registered.close()
    disk.remove_tree(B)
    assert opened(disk, clock).registrations.past == Past(7, None)


def test_full_disk_forgets_nothing_else(disk: SimulatedDisk, clock: ManualClock, registered: LogManager) -> None:
    disk.fail(errno.ENOSPC, operations=["write"])
    register(registered, 8)
    registered.close()
    manager = make_manager(disk, clock, [A, B], manager_options={"boot_id": BOOT})
    manager.open(lambda topic: LAZY)
    assert manager.registrations.past == Past(8, 5)
