"""The command itself: version, help, and how mistakes, interrupts and bugs end, with which exit status."""

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import barnabas
from barnabas.cli import main
from barnabas.cli.compiled import MODULES
from barnabas.cli.log import log_commands
from tests.support.command_line import invoke, run
from tests.support.sample_log import FIRST, append_plain, open_sample

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
