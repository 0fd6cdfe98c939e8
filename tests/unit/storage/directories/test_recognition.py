"""The tools tell logs from everything else, and touch nothing else."""

import io
from pathlib import Path

import pytest

from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.cli import main
from barnabas.storage.directories.recognition import holds_log
from barnabas.storage.tools.verify_directory import find_target
from tests.support.sample_log import make_sample

FILES = LocalFileSystem()
FIRST = "00000000000000000000"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_sample(tmp_path)


def content_of(directory: Path) -> dict[str, bytes | None]:
    """Everything below a directory; None for directories."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in directory.rglob("*")
    }


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main.run(list(arguments))
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def put_strangers(directory: Path) -> None:
    """What people keep in directories with names like these."""
    directory.mkdir(parents=True)
    (directory / "letter.tmp").write_text("dear all")
    (directory / "notes.txt").write_text("keep me")
    (directory / f"{FIRST}.log").write_text("2024-01-01 12:00:00 INFO a program's own log, which is no log of records")
    (directory / f"{FIRST}.index.tmp").write_text("not an index")


@pytest.mark.parametrize(
    ("names", "is_log"),
    [
        ({}, False),
        ({"notes.txt": b"x"}, False),
        ({f"{FIRST}.log": b""}, False),
        ({f"{FIRST}.log": b"hello, world, this is text that is long enough for a header of a batch"}, False),
        ({f"{FIRST}.log": bytes(100)}, False),
        ({"app.log": b"x", "app.index": b"y"}, False),
        ({f"{FIRST}.log.deleted": b"", f"{FIRST}.index.deleted": b""}, False),
        ({"partition.metadata": b"damaged"}, False),
        ({"partition.metadata": b"version: 0\ntopic_id: 4-cGgsIJTKyin2--2CwHzQ"}, True),
        ({f"{FIRST}.log": b"", f"{FIRST}.index": b""}, True),
        ({f"{FIRST}.log": b"damaged", f"{FIRST}.timeindex": b"too"}, True),
    ],
)
def test_log_is_told_by_what_no_other_directory_has(tmp_path: Path, names: dict[str, bytes], is_log: bool) -> None:
    for name, content in names.items():
        (tmp_path / name).write_bytes(content)
    assert holds_log(FILES, str(tmp_path)) is is_log


def test_segments_alone_are_a_log(data: Path) -> None:
    for path in (data / "orders-0").iterdir():
        if path.suffix != ".log":
            path.unlink()
    assert holds_log(FILES, str(data / "orders-0"))


def test_log_directory_may_have_the_name_of_a_partition(data: Path) -> None:
    renamed = data.rename(data.parent / "kafka-logs-1")
    target = find_target(FILES, str(renamed))
    assert not target.is_single
    assert target.partitions == (TopicPartition("orders", 0),)


@pytest.mark.parametrize("command", [["repair"], ["repair", "--yes"], ["repair", "--dry-run"], ["verify"]])
@pytest.mark.parametrize("place", ["", "backup-2024"])
def test_directory_that_is_no_log_is_refused_and_left_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str], place: str
) -> None:
    put_strangers(tmp_path / "backup-2024")
    before = content_of(tmp_path)
    status, out, err = run(capsys, "log", *command, str(tmp_path / place))
    assert (status, out) == (1, "")
    assert "there is no log in" in err
    assert content_of(tmp_path) == before


def test_repair_leaves_other_directories_and_files_alone(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    put_strangers(data / "backup-2024")
    (data / "orders-0" / "letter.tmp").write_text("dear all")
    (data / "orders-0" / "leader-epoch-checkpoint.tmp").write_text("being replaced")
    (data / "orders-0" / f"{FIRST}.index").unlink()
    before = content_of(data / "backup-2024")
    status, out, _ = run(capsys, "log", "repair", "--yes", str(data))
    assert status == 0, out
    assert content_of(data / "backup-2024") == before
    assert (data / "orders-0" / "letter.tmp").read_text() == "dear all"
    assert not (data / "orders-0" / "leader-epoch-checkpoint.tmp").exists()
    assert (data / "orders-0" / f"{FIRST}.index").exists()


def test_sound_log_beside_strangers_is_not_touched(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    put_strangers(data / "backup-2024")
    (data / "orders-0" / "letter.tmp").write_text("dear all")
    before = content_of(data)
    status, out, _ = run(capsys, "log", "repair", str(data))
    assert status == 0
    assert out.startswith("nothing to repair\n")
    assert {name: content for name, content in content_of(data).items() if name != ".lock"} == before
    status, out, _ = run(capsys, "log", "verify", str(data))
    assert status == 0
    assert "backup-2024: not checked: it holds no log, in spite of its name" in out
    assert "files that do not belong to the log, and are left alone: letter.tmp" in out


def test_partitions_without_a_log_directory_get_no_files_of_one(
    capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "copies"
    alone.mkdir()
    (data / "orders-0").rename(alone / "orders-0")
    (alone / "orders-0" / f"{FIRST}.index").unlink()
    assert run(capsys, "log", "repair", str(alone))[0] == 0
    assert [path.name for path in alone.iterdir()] == ["orders-0"]


def test_verify_knows_our_own_files(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    for name in ("barnabas-metadata.db", "barnabas-metadata.db-wal", "barnabas-metadata.lock", "stranger.txt"):
        (data / name).touch()
    _, out, _ = run(capsys, "log", "verify", str(data))
    assert "barnabas-metadata" not in out
    assert "stranger.txt: not a file of a log directory" in out


def test_verify_of_many_partitions_shows_those_with_findings(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    for number in range(1, 40):
        (data / f"orders-{number}").mkdir()
        (data / f"orders-{number}" / f"{FIRST}.log").touch()
        for kind in ("index", "timeindex"):
            (data / f"orders-{number}" / f"{FIRST}.{kind}").touch()
    (data / "orders-7" / "letter.tmp").touch()
    (data / "orders-30" / f"{FIRST}.index").write_bytes(bytes(3))
    status, out, _ = run(capsys, "log", "verify", str(data))
    assert status == 1
    rows = [line for line in out.splitlines() if line.startswith("orders-")]
    assert [(row.split()[0], row.split(maxsplit=7)[-1].strip()) for row in rows] == [
        ("orders-30", "1 error"),
        ("orders-7", "sound, 1 note"),
    ]
    assert "(38 more partitions not shown)" in out


# On a terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "is_repaired"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_repair_on_a_terminal_shows_the_plan_and_asks(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    data: Path,
    answer: str,
    is_repaired: bool,
) -> None:
    path = data / "orders-0" / f"{FIRST}.index"
    path.unlink()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    status, out, err = run(capsys, "log", "repair", str(data))
    assert "files that would change:" in out
    assert "without --dry-run" not in out
    assert "Repair as shown?" in err
    assert path.exists() is is_repaired
    assert status == (0 if is_repaired else 1)
    assert ("repaired 1 partition" in out) is is_repaired


def test_repair_of_a_sound_log_asks_nobody(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(""))
    assert run(capsys, "log", "repair", str(data))[:2] == (0, "nothing to repair\n")
