"""The overlay answers like a real file system, while the files below stay as they were."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import LocalFileSystem, read_file, replace_file
from barnabas.storage.tools.overlay import Change, ChangeKind, OverlayFileSystem

CONTENT = bytes(range(256)) * 50


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return str(path)


@pytest.fixture
def overlay(path: str) -> OverlayFileSystem:
    return OverlayFileSystem(LocalFileSystem())


def test_cut_file_is_listed_as_cut_and_stays_below(overlay: OverlayFileSystem, path: str) -> None:
    overlay.open(path, write=True).truncate(100)

    assert read_file(overlay, path) == CONTENT[:100]
    assert overlay.changes() == [Change(ChangeKind.CUT, path, len(CONTENT), 100)]
    assert Path(path).read_bytes() == CONTENT


def test_written_bytes_lie_over_the_file_below(overlay: OverlayFileSystem, path: str) -> None:
    overlay.open(path, write=True).write_at([b"one", b"two"], 4094)

    assert read_file(overlay, path) == CONTENT[:4094] + b"onetwo" + CONTENT[4100:]
    assert overlay.changes() == [Change(ChangeKind.REWRITTEN, path, len(CONTENT), len(CONTENT))]
    assert Path(path).read_bytes() == CONTENT


def test_same_bytes_written_again_are_no_change(overlay: OverlayFileSystem, path: str) -> None:
    file = overlay.open(path, write=True)
    file.truncate(0)
    file.write_at([CONTENT], 0)

    assert overlay.changes() == []


def test_bytes_do_not_come_back_after_a_cut(overlay: OverlayFileSystem, path: str) -> None:
    file = overlay.open(path, write=True)
    file.write_at([b"x" * 8192], 0)
    file.truncate(10)
    file.write_at([b"end"], 20)

    assert read_file(overlay, path) == b"x" * 10 + bytes(10) + b"end"


def test_created_removed_and_renamed_files_are_listed(overlay: OverlayFileSystem, path: str, tmp_path: Path) -> None:
    replace_file(overlay, str(tmp_path / "new"), b"hello")
    overlay.rename(path, str(tmp_path / "moved"))

    assert overlay.list(str(tmp_path)) == ["moved", "new"]
    assert not overlay.exists(path)
    assert read_file(overlay, str(tmp_path / "moved")) == CONTENT
    assert overlay.changes() == [
        Change(ChangeKind.REMOVED, path, len(CONTENT), 0),
        Change(ChangeKind.CREATED, str(tmp_path / "moved"), 0, len(CONTENT)),
        Change(ChangeKind.CREATED, str(tmp_path / "new"), 0, 5),
    ]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_file_that_is_not_there_raises_like_a_disk(overlay: OverlayFileSystem, tmp_path: Path) -> None:
    with pytest.raises(DiskFailed, match="No such file"):
        overlay.open(str(tmp_path / "nothing"))
    overlay.remove(str(tmp_path / "nothing"))
    assert overlay.changes() == []


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 20_000), st.binary(min_size=1, max_size=6000)),
        st.tuples(st.just("truncate"), st.integers(0, 20_000), st.just(b"")),
    ),
    max_size=12,
)


@given(OPERATIONS)
def test_overlay_file_reads_like_a_real_one(operations: list[tuple[str, int, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        below, model = Path(directory) / "below", Path(directory) / "model"
        below.write_bytes(CONTENT)
        model.write_bytes(CONTENT)
        overlaid = OverlayFileSystem(LocalFileSystem()).open(str(below), write=True)
        real = LocalFileSystem().open(str(model), write=True)
        try:
            for operation, place, content in operations:
                for file in (overlaid, real):
                    if operation == "write":
                        file.write_at([content], place)
                    else:
                        file.truncate(place)
            assert overlaid.size() == real.size()
            assert overlaid.read_at(real.size(), 0) == real.read_at(real.size(), 0)
            assert overlaid.read_at(5000, 3000) == real.read_at(5000, 3000)
        finally:
            real.close()
        assert below.read_bytes() == CONTENT
