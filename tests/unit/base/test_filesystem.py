"""The contract of `barnabas.base.filesystem`, on the operating system's files and on the simulated ones."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from barnabas.base.errors import DirectoryLocked, DiskFailed, DiskFull
from barnabas.base.filesystem import (
    FileSystem,
    LocalFileSystem,
    disk_error,
    make_durable_directory,
    read_file,
    replace_file,
)
from barnabas.sim.disk import SimulatedDisk


class Place(NamedTuple):
    """A file system and an empty directory on it."""

    files: FileSystem
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, name: str, content: bytes) -> str:
        file = self.files.open(self.path(name), write=True, create=True)
        file.write_at([content], 0)
        file.close()
        return self.path(name)


@pytest.fixture(params=["local", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(LocalFileSystem(), str(tmp_path))
    disk = SimulatedDisk(Random(1))
    disk.make_directory("/logs")
    return Place(disk, "/logs")


def test_write_at_of_many_buffers_stores_them_one_after_the_other(place: Place) -> None:
    path = place.put("a", b"0123456789")
    file = place.files.open(path, write=True)
    file.write_at([b"ab", bytearray(b"cd"), memoryview(b"ef"), b""], 3)
    assert file.read_at(100, 0) == b"012abcdef9"
    assert file.size() == place.files.size(path) == 10
    file.close()


def test_write_at_of_more_buffers_than_the_kernel_takes_at_once_is_complete(place: Place) -> None:
    file = place.files.open(place.path("a"), write=True, create=True)
    pieces = [str(number).encode() for number in range(5000)]
    file.write_at(pieces, 0)
    assert file.read_at(file.size(), 0) == b"".join(pieces)
    file.close()


def test_write_at_of_nothing_leaves_the_file_as_it_is(place: Place) -> None:
    file = place.files.open(place.path("a"), write=True, create=True)
    file.write_at([], 10)
    file.write_at([b""], 10)
    assert file.size() == 0
    file.close()


def test_write_at_past_the_end_leaves_zeros_in_between(place: Place) -> None:
    file = place.files.open(place.path("a"), write=True, create=True)
    file.write_at([b"x"], 5)
    assert file.read_at(10, 0) == b"\0\0\0\0\0x"
    file.close()


@pytest.mark.parametrize(
    ("length", "position", "expected"),
    [(3, 2, b"234"), (100, 7, b"789"), (5, 10, b""), (5, 90, b""), (0, 3, b"")],
)
def test_reads_are_short_only_at_the_end(place: Place, length: int, position: int, expected: bytes) -> None:
    file = place.files.open(place.put("a", b"0123456789"))
    target = bytearray(length)
    assert file.read_at(length, position) == expected
    assert file.read_into(target, position) == len(expected)
    assert target[: len(expected)] == expected
    file.close()


def test_truncate_cuts_and_grows_with_zeros(place: Place) -> None:
    file = place.files.open(place.put("a", b"0123456789"), write=True)
    file.truncate(4)
    file.truncate(6)
    assert file.read_at(10, 0) == b"0123\0\0"
    file.close()


def test_allocate_makes_the_file_longer_and_never_shorter(place: Place) -> None:
    file = place.files.open(place.put("a", b"0123456789"), write=True)
    file.allocate(4)
    assert file.read_at(100, 0) == b"0123456789"
    file.allocate(12)
    assert file.read_at(100, 0) == b"0123456789\0\0"
    file.close()


def test_map_follows_writes_and_outlives_its_file(place: Place) -> None:
    file = place.files.open(place.put("a", b"0123456789"), write=True)
    view = file.map(6)
    file.write_at([b"xy"], 4)
    file.write_at([b"more than there was"], 10)
    file.write_at([b"AB"], 0)
    file.close()
    assert bytes(view) == b"AB23xy"
    assert view.readonly


def test_map_of_nothing_is_empty(place: Place) -> None:
    file = place.files.open(place.path("a"), write=True, create=True)
    assert bytes(file.map(0)) == b""
    file.close()


def test_map_beyond_the_end_fails(place: Place) -> None:
    file = place.files.open(place.put("a", b"0123456789"))
    with pytest.raises(DiskFailed):
        file.map(11)
    file.close()


def test_file_after_sync_and_prefetch_is_resident_and_unchanged(place: Place) -> None:
    file = place.files.open(place.put("a", b"0123456789"), write=True)
    file.prefetch(0, 10)
    file.sync()
    assert file.is_resident(0, 10)
    assert file.read_resident(4, 3) == b"3456"
    assert file.read_at(10, 0) == b"0123456789"
    file.close()


def test_closed_file_refuses_everything_but_close(place: Place) -> None:
    file = place.files.open(place.put("a", b"0123456789"), write=True)
    file.close()
    file.close()
    uses: list[Callable[[], object]] = [
        lambda: file.write_at([b"x"], 0),
        lambda: file.read_at(1, 0),
        lambda: file.read_into(bytearray(1), 0),
        file.size,
        lambda: file.truncate(0),
        lambda: file.allocate(20),
        file.sync,
        lambda: file.map(1),
        lambda: file.prefetch(0, 1),
        lambda: file.is_resident(0, 1),
        lambda: file.read_resident(1, 0),
    ]
    for use in uses:
        with pytest.raises(DiskFailed) as failure:
            use()
        assert failure.value.errno == errno.EBADF


def test_file_opened_for_reading_refuses_writes(place: Place) -> None:
    file = place.files.open(place.put("a", b"0123456789"))
    with pytest.raises(DiskFailed):
        file.write_at([b"x"], 0)
    with pytest.raises(DiskFailed):
        file.truncate(0)
    assert file.read_at(10, 0) == b"0123456789"
    file.close()


def test_open_of_what_is_not_there_fails_unless_it_may_create(place: Place) -> None:
    with pytest.raises(DiskFailed) as failure:
        place.files.open(place.path("a"), write=True)
    assert (failure.value.errno, failure.value.operation, failure.value.path) == (
        errno.ENOENT,
        "open",
        place.path("a"),
    )
    with pytest.raises(DiskFailed):
        place.files.open(place.path("no/such/directory"), write=True, create=True)
    place.files.open(place.path("a"), write=True, create=True).close()
    assert place.files.size(place.path("a")) == 0


def test_open_with_create_keeps_what_is_there(place: Place) -> None:
    path = place.put("a", b"kept")
    place.files.open(path, write=True, create=True).close()
    assert read_file(place.files, path) == b"kept"


def test_make_directory_makes_parents_and_may_be_repeated(place: Place) -> None:
    place.files.make_directory(place.path("a/b/c"))
    place.files.make_directory(place.path("a/b/c"))
    assert place.files.is_directory(place.path("a/b/c"))
    assert place.files.list(place.path("a")) == ["b"]


def test_make_directory_in_the_place_of_a_file_fails(place: Place) -> None:
    place.put("a", b"")
    for name in ("a", "a/b"):
        with pytest.raises(DiskFailed):
            place.files.make_directory(place.path(name))


def test_list_is_sorted_and_fails_on_what_is_no_directory(place: Place) -> None:
    for name in ("c", "a", "b"):
        place.put(name, b"")
    assert place.files.list(place.root) == ["a", "b", "c"]
    for name in ("a", "missing"):
        with pytest.raises(DiskFailed):
            place.files.list(place.path(name))


def test_exists_and_is_directory_tell_files_from_directories_from_nothing(place: Place) -> None:
    place.put("file", b"")
    place.files.make_directory(place.path("directory"))
    names = ["file", "directory", "missing", "file/below"]
    assert [place.files.exists(place.path(name)) for name in names] == [True, True, False, False]
    assert [place.files.is_directory(place.path(name)) for name in names] == [False, True, False, False]


def test_size_and_time_of_what_is_not_there_fail(place: Place) -> None:
    for question in (place.files.size, place.files.modified_ms, place.files.free_bytes):
        with pytest.raises(DiskFailed):
            question(place.path("missing"))


def test_modified_time_and_free_space_of_a_file_are_known(place: Place) -> None:
    path = place.put("a", b"x")
    assert place.files.modified_ms(path) > 1_600_000_000_000
    assert place.files.free_bytes(path) > 0


def test_rename_replaces_a_file_while_the_old_one_stays_readable(place: Place) -> None:
    new, old = place.put("new", b"new"), place.put("old", b"old")
    reader = place.files.open(old)
    place.files.rename(new, old)
    assert place.files.list(place.root) == ["old"]
    assert read_file(place.files, old) == b"new"
    assert reader.read_at(10, 0) == b"old"
    reader.close()


def test_rename_of_a_directory_takes_its_files_along(place: Place) -> None:
    place.files.make_directory(place.path("a"))
    place.put("a/file", b"content")
    place.files.rename(place.path("a"), place.path("b"))
    assert place.files.list(place.root) == ["b"]
    assert read_file(place.files, place.path("b/file")) == b"content"


def test_rename_that_makes_no_sense_fails_and_changes_nothing(place: Place) -> None:
    place.put("file", b"")
    place.files.make_directory(place.path("full/below"))
    place.files.make_directory(place.path("directory"))
    pairs = [("missing", "x"), ("file", "directory"), ("directory", "file"), ("directory", "full")]
    for source, target in pairs:
        with pytest.raises(DiskFailed):
            place.files.rename(place.path(source), place.path(target))
    assert place.files.list(place.root) == ["directory", "file", "full"]


def test_rename_to_itself_changes_nothing(place: Place) -> None:
    path = place.put("a", b"content")
    place.files.rename(path, path)
    assert read_file(place.files, path) == b"content"


def test_remove_of_an_open_file_leaves_it_to_its_readers(place: Place) -> None:
    path = place.put("a", b"content")
    reader = place.files.open(path)
    place.files.remove(path)
    place.files.remove(path)
    assert not place.files.exists(path)
    assert reader.read_at(10, 0) == b"content"
    reader.close()


def test_remove_of_a_directory_fails(place: Place) -> None:
    place.files.make_directory(place.path("a"))
    with pytest.raises(DiskFailed):
        place.files.remove(place.path("a"))


def test_remove_tree_removes_everything_below(place: Place) -> None:
    place.files.make_directory(place.path("a/b"))
    place.put("a/b/file", b"")
    place.put("a/file", b"")
    place.files.remove_tree(place.path("a"))
    place.files.remove_tree(place.path("a"))
    assert place.files.list(place.root) == []


def test_remove_tree_of_a_file_fails(place: Place) -> None:
    path = place.put("a", b"")
    with pytest.raises(DiskFailed):
        place.files.remove_tree(path)
    assert place.files.exists(path)


def test_sync_directory_of_what_is_no_directory_fails(place: Place) -> None:
    path = place.put("a", b"")
    place.files.sync_directory(place.root)
    for name in (path, place.path("missing")):
        with pytest.raises(DiskFailed):
            place.files.sync_directory(name)


def test_lock_is_exclusive_until_released(place: Place) -> None:
    lock = place.files.lock(place.path(".lock"))
    with pytest.raises(DirectoryLocked, match=r"in use.*\.lock"):
        place.files.lock(place.path(".lock"))
    lock.release()
    lock.release()
    place.files.lock(place.path(".lock")).release()


def test_lock_in_a_missing_directory_fails(place: Place) -> None:
    with pytest.raises(DiskFailed):
        place.files.lock(place.path("missing/.lock"))


def test_replace_file_leaves_the_new_content_and_no_temporary_file(place: Place) -> None:
    path = place.put("checkpoint", b"the old content, which was longer")
    replace_file(place.files, path, b"new")
    assert read_file(place.files, path) == b"new"
    assert place.files.list(place.root) == ["checkpoint"]


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, DiskFailed)]
)
def test_disk_error_tells_a_full_disk_from_a_broken_one(code: int, kind: type[DiskFailed]) -> None:
    error = disk_error("write", "/logs/a", OSError(code, os.strerror(code)))
    assert type(error) is kind
    assert str(error) == f"cannot write /logs/a: {os.strerror(code)}"


def test_local_disk_that_cannot_be_asked_is_an_error_and_not_an_absence(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(DiskFailed) as failure:
        LocalFileSystem().exists(str(loop))
    assert failure.value.errno == errno.ELOOP


def test_local_lock_keeps_out_posix_locks_of_other_processes_even_after_a_refused_attempt(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    attempt = (
        "import fcntl, sys\n"
        "try: fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: print('refused')\n"
        "else: print('taken')\n"
    )

    def other_process() -> str:
        return subprocess.check_output([sys.executable, "-c", attempt, path], text=True).strip()

    lock = LocalFileSystem().lock(path)
    with pytest.raises(DirectoryLocked):
        LocalFileSystem().lock(path)
    assert other_process() == "refused"
    lock.release()
    assert other_process() == "taken"


def test_durable_directory_survives_a_power_loss_with_every_directory_on_the_way() -> None:
    disk = SimulatedDisk(Random(1), strict=True)
    make_durable_directory(disk, "srv/logs/data")
    assert disk.crash().is_directory("srv/logs/data")


def test_empty_directory_that_another_process_made_becomes_durable() -> None:
    disk = SimulatedDisk(Random(1), strict=True)
    disk.make_directory("srv/logs/data")
    disk = disk.kill()
    make_durable_directory(disk, "srv/logs/data/")
    assert disk.crash().is_directory("srv/logs/data")


def test_directory_that_is_in_use_costs_no_sync() -> None:
    disk = SimulatedDisk(Random(1))
    disk.make_directory("srv/logs/data/orders-0")
    disk.fail(errno.EIO, operations=["sync_directory"])
    make_durable_directory(disk, "srv/logs/data")


@pytest.mark.parametrize(("code", "is_fine"), [(errno.EACCES, True), (errno.EIO, False)])
def test_directory_above_that_cannot_be_opened_is_its_owners_business(code: int, is_fine: bool) -> None:
    disk = SimulatedDisk(Random(1))
    disk.make_directory("srv/logs")
    disk.fail(code, operations=["sync_directory"], path_pattern="")
    if is_fine:
        make_durable_directory(disk, "srv/logs/data")
        return
    with pytest.raises(DiskFailed):
        make_durable_directory(disk, "srv/logs/data")


def test_durable_directory_may_be_given_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_durable_directory(LocalFileSystem(), "logs/data")
    assert (tmp_path / "logs" / "data").is_dir()
