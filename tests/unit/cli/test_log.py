"""The commands as a user meets them: what is printed, where, and with which exit status."""

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner, Result

import barnabas
from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.cli import main
from barnabas.cli.compiled import MODULES
from barnabas.cli.log import log_commands
from barnabas.cli.log.dump_text import bytes_text, time_text
from barnabas.cli.output import human_bytes, plural
from barnabas.records.batch import Codec
from barnabas.records.builder import BatchBuilder
from barnabas.storage.checkpoints import encode_offsets
from tests.support.sample_log import START_MS, append_plain, make_sample, open_sample

FIRST = "00000000000000000000"
HOLD_LOCK = """
import sys
from barnabas.base.filesystem import LocalFileSystem
lock = LocalFileSystem().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_sample(tmp_path)


@pytest.fixture
def broker(data: Path) -> Iterator[None]:
    """Another process that uses the directory."""
    command = [sys.executable, "-c", HOLD_LOCK, str(data / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate()


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main.make_app(), list(arguments))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Through the entry point, which is where errors become lines."""
    status = main.run(list(arguments))
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.fixture(autouse=True)
def _keep_excepthook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


# -- the command itself ----------------------------------------------------------------------------------------------


def test_version_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    result = invoke("--version")

    version = f"barnabas {barnabas.__version__}"
    assert (result.exit_code, result.stdout) == (0, f"{version} (compiled, Python {platform.python_version()})\n")

    monkeypatch.setitem(sys.modules, MODULES[0], None)
    first, second = invoke("--version").stdout.splitlines()
    assert first.startswith(f"{version} (compiled in part, ")
    assert second.startswith(f"not compiled: {MODULES[0]}: ")

    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, None)
    assert invoke("--version").stdout.startswith(f"{version} (pure Python, ")


def test_help_names_the_commands() -> None:
    assert "log " in invoke("--help").stdout
    for command in ("dump", "verify", "repair"):
        assert f"\n  {command} " in invoke("log", "--help").stdout


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys)

    assert (status, err) == (0, "")
    assert out.startswith("Usage: barnabas")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["log", "dmp"], "barnabas: No such command 'dmp'. Did you mean 'dump'? See `barnabas log --help`\n"),
        (["log", "dump"], "barnabas: Missing argument 'FILE'; see `barnabas log dump --help`\n"),
        (["log", "dump", "-n", "0", "x"], "see `barnabas log dump --help`\n"),
        (["log", "verify", "/nowhere/at/all"], "barnabas: cannot list /nowhere/at/all: No such file or directory\n"),
    ],
)
def test_mistake_ends_in_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    status, out, err = run(capsys, *arguments)

    assert (status, out) == (1, "")
    assert err.endswith(line)
    assert err.count("\n") == 1


def test_interrupt_is_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log_commands, "_dump_one", interrupted)

    assert run(capsys, "log", "dump", str(data / "meta.properties")) == (130, "", "")


def test_bug_becomes_one_line_and_a_trace_in_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        main._report_bug(ZeroDivisionError, error, error.__traceback__)

    err = capsys.readouterr().err
    (trace,) = tmp_path.glob("barnabas-*.trace")
    assert (
        err
        == f"barnabas: this is a bug: ZeroDivisionError: division by zero (the trace is in {trace}; please report it)\n"
    )
    assert "Traceback" in trace.read_text()


# -- as a process ----------------------------------------------------------------------------------------------------


def process(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "barnabas.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


def test_process_prints_plain_text_into_a_pipe(data: Path) -> None:
    done = process("log", "verify", str(data))

    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert done.stdout.endswith("1 partition, 18 records, 851 B: sound\n")


def test_process_whose_reader_has_gone_is_quiet(tmp_path: Path) -> None:
    log = open_sample(tmp_path / "orders-0")
    for _ in range(200):
        append_plain(log, 50)
    log.close()
    command = [sys.executable, "-m", "barnabas.cli.main", "log", "dump", "--records"]
    with subprocess.Popen(
        [*command, str(tmp_path / "orders-0" / f"{FIRST}.log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        reader.stdout.readline()
        reader.stdout.close()
        assert reader.stderr.read() == ""
        assert reader.wait() == 1


def test_process_that_meets_a_bug_shows_no_trace(data: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from barnabas.cli import main; from barnabas.cli.log import log_commands as log\n"
        "log._dump_one = lambda *_: 1 / 0\n"
        "sys.argv[1:] = ['log', 'dump', 'x']\n"
        "main.main()\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)

    assert done.returncode == 1
    assert done.stderr.startswith("barnabas: this is a bug: ZeroDivisionError")
    assert done.stderr.count("\n") == 1


def test_interrupted_process_exits_with_130() -> None:
    script = (
        "import signal, sys; from barnabas.cli import main; from barnabas.cli.log import log_commands as log\n"
        "log._dump_one = lambda *_: (print('at work', flush=True), signal.pause())\n"
        "sys.argv[1:] = ['log', 'dump', 'x']\n"
        "main.main()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "at work\n"
        worker.send_signal(signal.SIGINT)
        out, err = worker.communicate()

    assert (worker.returncode, out, err) == (130, "", "")


# -- dump ------------------------------------------------------------------------------------------------------------


def test_dump_of_records_is_safe_for_any_bytes(tmp_path: Path) -> None:
    log = open_sample(tmp_path / "orders-0")
    builder = BatchBuilder()
    builder.append(START_MS, b"\x1b[31mred", "\u202egnp.exe".encode(), [("\udcff", b"\x00")])
    builder.append(START_MS, b"", "größe".encode(), [("", None)])
    log.append(memoryview(builder.build()), leader_epoch=0)
    log.close()

    lines = invoke("log", "dump", "--records", str(tmp_path / "orders-0" / f"{FIRST}.log")).stdout.splitlines()

    assert lines[1].endswith(r'key="\u001b[31mred" value="\u202egnp.exe" headers={0xff: "\u0000"}')
    assert lines[2].endswith('key="" value="größe" headers={"": null}')


def test_dump_as_json_gives_every_line_an_object(data: Path) -> None:
    result = invoke("log", "dump", "--json", "--records", str(data / "orders-0" / f"{FIRST}.log"))

    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["type"] for line in lines].count("batch") == 4
    records = [line for line in lines if line["type"] == "record"]
    assert [record["offset"] for record in records] == list(range(10))
    assert records[6]["key"] == {"base64": "/wA="}
    assert records[5]["headers"] == [["reason", "cancelled"], ["trace", None]]
    assert lines[-2]["marker"] == "abort"


def test_dump_begins_and_ends_where_it_is_told(data: Path) -> None:
    path = str(data / "orders-0" / f"{FIRST}.log")

    assert invoke("log", "dump", "--from", "8", "-n", "1", path).stdout.startswith("batch 7..8 ")
    records = invoke("log", "dump", "--records", "--from", "3", "-n", "3", path).stdout.splitlines()
    assert [line.split()[:2] for line in records] == [
        ["batch", "0..3"],
        ["record", "3"],
        ["batch", "4..6"],
        ["record", "4"],
        ["record", "5"],
    ]


@pytest.mark.parametrize(
    ("name", "first_line"),
    [
        (f"orders-0/{FIRST}.index", "offset=8 position=278"),
        (f"orders-0/{FIRST}.timeindex", "timestamp=2023-11-14T22:13:21.001Z offset=8"),
        (f"orders-0/{FIRST}.txnindex", "producer_id=7 first_offset=7 last_offset=9 last_stable_offset=10"),
        ("orders-0/leader-epoch-checkpoint", "epoch=0 start_offset=0"),
        ("orders-0/partition.metadata", "topic_id=AAAAAAAAAAAAAAAAAAAHWw"),
        ("recovery-point-offset-checkpoint", "topic=orders partition=0 offset=18"),
        ("meta.properties", "cluster_id=castle node_id=1 directory_id=AAAAAAAAAAAAAAAAAAAHhg"),
        (".kafka_cleanshutdown", "broker_epoch=-1"),
    ],
)
def test_dump_knows_every_file(data: Path, name: str, first_line: str) -> None:
    result = invoke("log", "dump", str(data / name))

    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == first_line


@pytest.mark.parametrize("suffix", [".deleted", ".cleaned", ".swap"])
def test_dump_reads_files_with_a_suffix(data: Path, suffix: str) -> None:
    path = data / "orders-0" / f"{FIRST}.index"
    path.rename(f"{path}{suffix}")

    assert invoke("log", "dump", f"{path}{suffix}").stdout == "offset=8 position=278\n"


def test_dump_reads_compressed_records(tmp_path: Path) -> None:
    log = open_sample(tmp_path / "orders-0")
    builder = BatchBuilder(codec=Codec.ZSTD)
    builder.append(START_MS, b"k", b"v")
    log.append(memoryview(builder.build()), leader_epoch=0)
    log.close()

    out = invoke("log", "dump", "--records", str(tmp_path / "orders-0" / f"{FIRST}.log")).stdout

    assert " codec=zstd " in out
    assert 'key="k" value="v"' in out


def test_dump_of_damaged_log_ends_at_the_damage(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    path = data / "orders-0" / f"{FIRST}.log"
    content = bytearray(path.read_bytes())
    content[250] ^= 1
    path.write_bytes(content)

    status, out, err = run(capsys, "log", "dump", str(path), str(data / "meta.properties"))

    assert status == 1
    assert out.splitlines()[1].startswith("batch 0..3 ")
    assert err == f"barnabas: {path}, position 141: the checksum does not match\n"
    assert "cluster_id=castle" in out, "the other files are still dumped"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (f"{FIRST}.index", b"\x00\x00\x00\x01\x00\x00\x00\x02" * 2, "position 8: (1, 2) does not come after (1, 2)"),
        (f"{FIRST}.index", b"\x00\x00\x00\x01\x00\x00\x00\x02\x00", "position 8: 1 bytes after the last entry"),
        (f"{FIRST}.txnindex", b"\x00" * 33, "33 bytes are not whole entries of 34"),
        (f"{FIRST}.snapshot", b"\x00", "1 bytes, less than a header"),
        ("leader-epoch-checkpoint", b"0\n1\n", "line 2: 1 entries announced, but there are 0"),
        ("some.index", b"", "give the file its name back"),
        ("notes.txt", b"", "is no file of a log by its name"),
    ],
)
def test_dump_of_what_cannot_be_read_says_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    (tmp_path / name).write_bytes(content)

    status, _, err = run(capsys, "log", "dump", str(tmp_path / name))

    assert status == 1
    assert complaint in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [(-1, "none"), (0, "1970-01-01T00:00:00.000Z"), (2**62, str(2**62)), (-(2**62), str(-(2**62)))],
)
def test_time_is_shown_whatever_it_is(timestamp: int, text: str) -> None:
    assert time_text(timestamp) == text


def test_bytes_are_shown_as_text_only_when_they_are() -> None:
    assert [bytes_text(content) for content in (None, b"", b"a\nb", b"\xff")] == ["null", '""', '"a\\nb"', "0xff"]


# -- verify ----------------------------------------------------------------------------------------------------------


def test_verify_of_damaged_log_names_the_place_and_fails(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    path = data / "orders-0" / f"{FIRST}.index"
    path.write_bytes(b"\x00\x00\x00\x07\x00\x00\x01\x16")

    status, out, _ = run(capsys, "log", "verify", str(data))

    assert status == 1
    assert f"error  {path}, position 0, offset 7: (offset 7, position 278), but the batch there ends" in out
    assert out.splitlines()[-1].startswith("1 partition, 18 records, 851 B: 1 error;")


def test_verify_as_json_is_one_object(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    (data / "orders-0" / f"{FIRST}.txnindex").unlink()

    status, out, _ = run(capsys, "log", "verify", "--json", str(data / "orders-0"))

    report = json.loads(out)
    assert status == 1
    assert (report["sound"], report["in_use"]) == (False, False)
    (partition,) = report["partitions"]
    assert (partition["name"], partition["records"], partition["errors"]) == ("orders-0", 18, 1)
    assert partition["findings"][0]["offset"] == 9


@pytest.mark.usefixtures("broker")
def test_verify_says_that_the_directory_is_in_use(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    status, out, err = run(capsys, "log", "verify", str(data))

    assert status == 0
    assert err == f"{data} is in use: what is written meanwhile is not seen, or seen in part\n"
    assert out.endswith(": sound\n")


# -- repair ----------------------------------------------------------------------------------------------------------


def snapshot_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def damage(data: Path) -> None:
    path = data / "orders-0" / "00000000000000000010.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    (data / "orders-0" / f"{FIRST}.timeindex").unlink()


def test_dry_run_shows_the_plan_and_changes_nothing(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    damage(data)
    before = snapshot_of(data)

    status, out, _ = run(capsys, "log", "repair", "--dry-run", str(data))

    assert status == 0
    assert snapshot_of(data) == before
    assert "  cut 103 bytes from 00000000000000000010.log at position 297: the checksum does not match\n" in out
    assert "  the offsets from 16 to 17 would be lost\n" not in out, "the bad batch was the last: nothing else is lost"
    assert f"  create   {data}/orders-0/{FIRST}.timeindex  0 B -> " in out
    assert f"  cut      {data}/orders-0/00000000000000000010.log  400 B -> 297 B\n" in out


def test_repair_does_what_the_plan_says_and_leaves_a_sound_log(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    damage(data)

    status, out, _ = run(capsys, "log", "repair", str(data))

    assert status == 0
    assert out.endswith("repaired 1 partition\n")
    assert run(capsys, "log", "verify", str(data))[0] == 0
    assert (data / "recovery-point-offset-checkpoint").read_bytes() == encode_offsets({TopicPartition("orders", 0): 16})
    assert run(capsys, "log", "repair", str(data))[1] == "nothing to repair\n"


def test_repair_of_a_damaged_checkpoint_writes_it_anew(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n3\n")

    assert run(capsys, "log", "repair", str(data))[0] == 0
    assert run(capsys, "log", "verify", str(data))[0] == 0


def test_repair_that_leaves_an_error_fails(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    (data / "meta.properties").write_text("version=9\n")

    status, _, err = run(capsys, "log", "repair", str(data))

    assert status == 1
    assert err == "barnabas: something is still broken; `barnabas log verify` shows the place\n"


def test_repair_keeps_the_gaps_of_a_compacted_log(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    for kind in ("log", "index", "timeindex", "txnindex"):
        (data / "orders-0" / f"{FIRST}.{kind}").unlink()
    log = data / "orders-0" / "00000000000000000010.log"
    content = log.read_bytes()
    log.write_bytes(content[:124] + content[297:])
    (data / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 18\n")
    (data / "orders-0" / "00000000000000000010.index").unlink()

    assert run(capsys, "log", "repair", str(data))[0] == 0
    assert invoke("log", "verify", str(data)).exit_code == 0
    assert "batch 16..17 " in invoke("log", "dump", str(log)).stdout


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_repair_refuses_a_directory_in_use(capsys: pytest.CaptureFixture[str], data: Path, options: list[str]) -> None:
    damage(data)
    before = snapshot_of(data)

    status, _, err = run(capsys, "log", "repair", *options, str(data))

    assert status == 1
    assert "is in use by another process" in err
    assert snapshot_of(data) == before


def test_repair_releases_the_lock(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    damage(data)
    run(capsys, "log", "repair", str(data))

    LocalFileSystem().lock(str(data / ".lock")).release()


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 30, "3.0 GiB")]
)
def test_sizes_are_shown_as_people_say_them(count: int, text: str) -> None:
    assert human_bytes(count) == text


def test_counts_are_shown_with_their_noun() -> None:
    assert [plural(1, "batch"), plural(2, "batch"), plural(3000, "record")] == ["1 batch", "2 batches", "3,000 records"]
