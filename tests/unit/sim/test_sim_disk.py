"""The crashable disk: what is durable stays, what is not may vanish, calls fail where they are told to."""

import errno
import io
from collections.abc import Callable
from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DirectoryLocked, DiskFailed, DiskFull
from barnabas.base.filesystem import read_file, replace_file
from barnabas.sim.disk import SimulatedDisk

SEEDS = range(200)
PAGE_BYTES = 16


def disk_with(seed: int, content: bytes = b"", *, strict: bool = False) -> SimulatedDisk:
    """A disk with one file, `/logs/a`, durable with its name."""
    disk = SimulatedDisk(Random(seed), page_bytes=PAGE_BYTES, strict=strict)
    disk.make_directory("/logs")
    put(disk, "/logs/a", content)
    disk.sync_directory("/logs")
    disk.sync_directory("/")
    return disk


def put(disk: SimulatedDisk, path: str, content: bytes, *, sync: bool = True) -> None:
    file = disk.open(path, write=True, create=True)
    file.truncate(0)
    file.write_at([content], 0)
    if sync:
        file.sync()
    file.close()


def after_crash(seed: int, change: Callable[[SimulatedDisk], None], content: bytes = b"") -> bytes:
    disk = disk_with(seed, content)
    change(disk)
    return read_file(disk.crash(), "/logs/a")


# Bytes


def test_synced_prefix_survives_every_crash_and_the_rest_is_new_or_zero() -> None:
    lengths = set()
    tails = set()
    for seed in SEEDS:
        disk = disk_with(seed, b"o" * 40)
        file = disk.open("/logs/a", write=True)
        file.write_at([b"n" * 50], 40)
        found = read_file(disk.crash(), "/logs/a")
        assert found[:40] == b"o" * 40
        assert 40 <= len(found) <= 90
        assert set(found[40:]) <= {ord("n"), 0}
        lengths.add(len(found))
        tails.add(found[40:])
    assert {40, 90} <= lengths, "nothing kept and everything kept both happen"
    assert b"n" * 50 in tails
    assert any(b"\0n" in tail for tail in tails), "a later page survives an earlier one"
    assert any((40 + len(tail.rstrip(b"\0"))) % PAGE_BYTES for tail in tails if tail.endswith(b"\0")), "torn"


def test_overwritten_bytes_are_the_old_or_the_new_ones() -> None:
    def overwrite(disk: SimulatedDisk) -> None:
        disk.open("/logs/a", write=True).write_at([b"n" * 30], 10)

    found = {after_crash(seed, overwrite, b"o" * 64) for seed in SEEDS}
    for content in found:
        assert len(content) == 64
        assert content[:10] == b"o" * 10
        assert set(content[10:40]) <= set(b"on")
        assert content[40:] == b"o" * 24
    assert len(found) > 5


def test_synced_overwrite_survives_every_crash() -> None:
    def overwrite_and_sync(disk: SimulatedDisk) -> None:
        file = disk.open("/logs/a", write=True)
        file.write_at([b"n" * 30], 10)
        file.sync()

    assert {after_crash(seed, overwrite_and_sync, b"o" * 64) for seed in SEEDS} == {b"o" * 10 + b"n" * 30 + b"o" * 24}


def test_bytes_overwritten_twice_may_come_back_as_the_value_in_between() -> None:
    def overwrite_twice(disk: SimulatedDisk) -> None:
        file = disk.open("/logs/a", write=True)
        file.write_at([b"1" * 16], 0)
        file.write_at([b"2" * 16], 0)

    found = b"".join(after_crash(seed, overwrite_twice, b"0" * 16) for seed in SEEDS)
    assert set(found) == set(b"012")


def test_cut_file_is_after_a_crash_between_its_lengths_with_old_new_or_zero_bytes() -> None:
    def cut_and_append(disk: SimulatedDisk) -> None:
        file = disk.open("/logs/a", write=True)
        file.truncate(20)
        file.write_at([b"n" * 30], 20)

    found = [after_crash(seed, cut_and_append, b"o" * 100) for seed in SEEDS]
    for content in found:
        assert 20 <= len(content) <= 100
        assert content[:20] == b"o" * 20
        assert set(content[20:50]) <= set(b"on\0")
        assert set(content[50:]) <= set(b"o\0")
    assert {20, 50, 100} <= {len(content) for content in found}
    assert set(b"".join(content[20:50] for content in found)) == set(b"on\0")


def test_synced_cut_survives_every_crash() -> None:
    def cut_and_sync(disk: SimulatedDisk) -> None:
        file = disk.open("/logs/a", write=True)
        file.truncate(20)
        file.truncate(30)
        file.sync()

    assert {after_crash(seed, cut_and_sync, b"o" * 100) for seed in SEEDS} == {b"o" * 20 + b"\0" * 10}


def test_crash_of_a_crashed_disk_finds_the_same() -> None:
    for seed in SEEDS:
        disk = disk_with(seed)
        disk.open("/logs/a", write=True).write_at([b"n" * 100], 0)
        put(disk, "/logs/b", b"content")
        disk = disk.crash()
        found = read_file(disk, "/logs/a")
        names = disk.list("/logs")
        again = disk.crash()
        assert (read_file(again, "/logs/a"), again.list("/logs")) == (found, names)


def test_kill_keeps_what_was_written_but_does_not_make_it_durable() -> None:
    lost = 0
    for seed in SEEDS:
        disk = disk_with(seed, b"o" * 10)
        disk.open("/logs/a", write=True).write_at([b"n" * 10], 10)
        put(disk, "/logs/b", b"b", sync=False)
        disk = disk.kill()
        assert read_file(disk, "/logs/a") == b"o" * 10 + b"n" * 10
        assert read_file(disk, "/logs/b") == b"b"
        lost += not disk.crash().exists("/logs/b")
    assert 0 < lost < len(SEEDS)


# Names


def test_name_without_directory_sync_may_vanish_and_with_strict_always_does() -> None:
    outcomes = set()
    for seed in SEEDS:
        for strict in (False, True):
            disk = disk_with(seed, strict=strict)
            put(disk, "/logs/b", b"synced content")
            outcomes.add((strict, disk.crash().exists("/logs/b")))
    assert outcomes == {(False, False), (False, True), (True, False)}


def test_any_unsynced_names_survive() -> None:
    found = set()
    for seed in range(400):
        disk = disk_with(seed)
        for name in "bcd":
            put(disk, f"/logs/{name}", b"")
        disk.remove("/logs/b")
        found.add("".join(disk.crash().list("/logs")))
    assert found == {f"a{b}{c}{d}" for b in ("", "b") for c in ("", "c") for d in ("", "d")}


def test_removed_file_may_come_back_until_its_directory_is_synced() -> None:
    found = set()
    for seed in SEEDS:
        disk = disk_with(seed, b"content")
        disk.remove("/logs/a")
        unsynced = disk.power_loss_image()
        disk.sync_directory("/logs")
        found.add((unsynced.exists("/logs/a"), disk.crash().exists("/logs/a")))
    assert found == {(True, False), (False, False)}


def test_rename_happens_or_does_not() -> None:
    found = set()
    for seed in SEEDS:
        disk = disk_with(seed, b"old")
        put(disk, "/logs/a.tmp", b"new")
        disk.rename("/logs/a.tmp", "/logs/a")
        disk = disk.crash()
        found.add((tuple(disk.list("/logs")), read_file(disk, "/logs/a")))
    assert found == {(("a",), b"old"), (("a", "a.tmp"), b"old"), (("a",), b"new")}


def test_rename_without_sync_of_the_new_file_may_lose_its_content() -> None:
    found = set()
    for seed in SEEDS:
        disk = disk_with(seed, b"old")
        put(disk, "/logs/a.tmp", b"new", sync=False)
        disk.rename("/logs/a.tmp", "/logs/a")
        found.add(read_file(disk.crash(), "/logs/a"))
    assert {b"old", b"new", b""} <= found


def test_replace_file_survives_a_crash_at_every_call() -> None:
    for seed in range(20):
        disk = disk_with(seed, b"old")
        images: list[bytes] = []

        def cut(operation: str, path: str, disk: SimulatedDisk = disk, images: list[bytes] = images) -> None:
            images.append(read_file(disk.power_loss_image(), "/logs/a"))

        disk.before_call = cut
        replace_file(disk, "/logs/a", b"new")
        assert set(images) <= {b"old", b"new"}
        assert read_file(disk.crash(), "/logs/a") == b"new"


def test_directory_without_sync_of_its_parent_may_vanish_with_all_its_synced_files() -> None:
    found = set()
    for seed in SEEDS:
        disk = disk_with(seed)
        disk.make_directory("/logs/topic-0")
        put(disk, "/logs/topic-0/file", b"content")
        disk.sync_directory("/logs/topic-0")
        found.add(disk.crash().exists("/logs/topic-0/file"))
    assert found == {False, True}


def test_remove_tree_may_be_half_done_after_a_crash() -> None:
    found = set()
    for seed in range(400):
        disk = disk_with(seed)
        disk.make_directory("/logs/topic-0")
        for name in "abc":
            put(disk, f"/logs/topic-0/{name}", b"")
        disk.sync_directory("/logs/topic-0")
        disk.sync_directory("/logs")
        disk.remove_tree("/logs/topic-0")
        disk = disk.crash()
        found.add("".join(disk.list("/logs/topic-0")) if disk.exists("/logs/topic-0") else None)
    assert found == {None, *(f"{a}{b}{c}" for a in ("", "a") for b in ("", "b") for c in ("", "c"))}


def test_rename_to_another_directory_is_refused() -> None:
    disk = disk_with(1)
    with pytest.raises(DiskFailed) as failure:
        disk.rename("/logs/a", "/a")
    assert failure.value.errno == errno.EXDEV


# Death


@pytest.mark.parametrize("death", [SimulatedDisk.crash, SimulatedDisk.kill])
def test_dead_disk_refuses_everything_and_frees_its_locks(
    death: Callable[[SimulatedDisk], SimulatedDisk],
) -> None:
    disk = disk_with(1, b"content")
    file = disk.open("/logs/a", write=True)
    lock = disk.lock("/logs/.lock")
    successor = death(disk)
    uses: list[Callable[[], object]] = [
        lambda: file.write_at([b"x"], 0),
        lambda: file.read_at(1, 0),
        file.size,
        file.sync,
        lambda: file.truncate(0),
        lambda: disk.open("/logs/a"),
        lambda: disk.exists("/logs/a"),
        lambda: disk.remove("/logs/a"),
        lambda: disk.rename("/logs/a", "/logs/b"),
        lambda: disk.sync_directory("/logs"),
    ]
    for use in uses:
        with pytest.raises(DiskFailed) as failure:
            use()
        assert failure.value.errno == errno.ESTALE
    file.close()
    held = successor.lock("/logs/.lock")
    lock.release()
    with pytest.raises(DirectoryLocked):
        successor.lock("/logs/.lock")
    held.release()
    assert read_file(successor, "/logs/a") == b"content"


def test_map_of_a_killed_process_is_not_the_next_ones_concern() -> None:
    disk = disk_with(1, b"content")
    view = disk.open("/logs/a").map(7)
    disk = disk.kill()
    file = disk.open("/logs/a", write=True)
    file.truncate(0)
    file.write_at([b"other"], 0)
    assert bytes(view) == b"content"


def test_cut_below_a_live_map_is_our_bug_and_after_dropping_it_fine() -> None:
    file = disk_with(1, b"content").open("/logs/a", write=True)
    view = file.map(7)
    file.write_at([b"more"], 7)
    with pytest.raises(AssertionError, match="live map"):
        file.truncate(6)
    file.truncate(7)
    view.release()
    file.truncate(6)
    assert file.read_at(10, 0) == b"conten"


def test_file_has_no_descriptor() -> None:
    with pytest.raises(io.UnsupportedOperation):
        disk_with(1).open("/logs/a").fileno()


# Faults


def test_fail_strikes_the_call_it_was_told_to_and_only_that() -> None:
    disk = disk_with(1)
    disk.fail(errno.EIO, after_calls=2, operations={"write"}, path_pattern="*/a")
    put(disk, "/logs/b", b"another path")
    file = disk.open("/logs/a", write=True)
    file.write_at([b"1"], 0)
    file.write_at([b"2"], 1)
    with pytest.raises(DiskFailed) as failure:
        file.write_at([b"3"], 2)
    assert (type(failure.value), failure.value.errno, failure.value.operation) == (
        DiskFailed,
        errno.EIO,
        "write",
    )
    file.write_at([b"3"], 2)
    assert file.read_at(10, 0) == b"123"


def test_fail_without_limit_lasts_until_healed() -> None:
    disk = disk_with(1, b"content")
    disk.fail(errno.EIO, operations={"read"}, times=None)
    file = disk.open("/logs/a")
    for _ in range(3):
        with pytest.raises(DiskFailed):
            file.read_at(1, 0)
    disk.heal()
    assert file.read_at(1, 0) == b"c"


def test_failed_write_leaves_some_first_part_of_its_bytes() -> None:
    lengths = set()
    for seed in SEEDS:
        disk = disk_with(seed)
        disk.fail(errno.EIO, operations={"write"})
        file = disk.open("/logs/a", write=True)
        with pytest.raises(DiskFailed):
            file.write_at([b"0123", b"4567"], 0)
        lengths.add(file.size())
        assert file.read_at(8, 0) == b"01234567"[: file.size()]
    assert lengths == set(range(9))


def test_sync_that_succeeds_after_one_that_failed_proves_nothing() -> None:
    found = set()
    for seed in SEEDS:
        disk = disk_with(seed, b"old.")
        file = disk.open("/logs/a", write=True)
        file.write_at([b"new."], 0)
        disk.fail(errno.EIO, operations={"sync"})
        with pytest.raises(DiskFailed):
            file.sync()
        file.sync()
        assert file.read_at(4, 0) == b"new."
        found.add(read_file(disk.crash(), "/logs/a"))
    assert {b"old.", b"new."} <= found


def test_before_call_sees_every_call_and_may_fail_it() -> None:
    disk = disk_with(1)
    seen: list[tuple[str, str]] = []

    def refuse_sync(operation: str, path: str) -> None:
        seen.append((operation, path))
        if operation == "sync_directory":
            raise OSError(errno.EIO, "no")

    disk.before_call = refuse_sync
    disk.open("/logs/a").size()
    with pytest.raises(DiskFailed):
        disk.sync_directory("/logs")
    assert seen == [("open", "/logs/a"), ("stat", "/logs/a"), ("sync_directory", "/logs")]


def test_crash_from_before_call_ends_the_call_it_came_before() -> None:
    disk = disk_with(1, b"old")
    successors: list[SimulatedDisk] = []
    file = disk.open("/logs/a", write=True)
    disk.before_call = lambda operation, path: successors.append(disk.crash())
    with pytest.raises(DiskFailed):
        file.write_at([b"new"], 0)
    assert read_file(successors[0], "/logs/a") == b"old"


def test_full_disk_takes_what_fits_and_heals_when_it_grows_or_space_is_freed() -> None:
    disk = disk_with(1, b"0123456789")
    put(disk, "/logs/b", b"bbbbb")
    disk.capacity_bytes = 20
    file = disk.open("/logs/a", write=True)
    assert disk.free_bytes("/logs") == 5
    with pytest.raises(DiskFull):
        file.write_at([b"abcdefgh"], 10)
    assert file.read_at(100, 0) == b"0123456789abcde"
    file.write_at([b"XX"], 0)
    with pytest.raises(DiskFull):
        file.allocate(16)
    assert file.size() == 15
    disk.remove("/logs/b")
    file.write_at([b"fg"], 15)
    disk.capacity_bytes = 100
    file.allocate(60)
    assert disk.free_bytes("/logs") == 40
    file.truncate(10)
    assert disk.free_bytes("/logs") == 90
    file.truncate(1000)
    assert disk.free_bytes("/logs") == 90, "a hole takes no space"
    disk.check_invariants()
    disk.crash().check_invariants()


def test_modified_time_follows_the_clock_and_survives_a_crash() -> None:
    clock = ManualClock(1000)
    disk = SimulatedDisk(Random(1), clock=clock)
    put(disk, "/a", b"1")
    clock.advance(500)
    disk.open("/a", write=True).write_at([b"2"], 0)
    disk.sync_directory("/")
    assert disk.crash().modified_ms("/a") == 1500


def test_same_seed_gives_the_same_disk() -> None:
    def history(seed: int) -> list[bytes]:
        disk = disk_with(seed)
        found = []
        for turn in range(20):
            file = disk.open("/logs/a", write=True)
            file.write_at([bytes([turn]) * 100], turn * 10)
            disk = disk.crash()
            found.append(read_file(disk, "/logs/a"))
        return found

    assert history(7) == history(7)
    assert history(7) != history(8)
