"""Runs command lines of `barnabas` in this process, as a shell would: with pipes, and both streams in their order."""

import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from unittest.mock import patch

import pytest
from typer.testing import CliRunner, Result

from barnabas.cli import main


def run_line(line: str, bootstrap: str) -> str:
    """What a person sees after this line, both streams in their order; what goes through a pipe is not seen."""
    piped = b""
    seen = BytesIO()
    for number, command in enumerate(commands := line.split(" | ")):
        is_last = number == len(commands) - 1
        program, *arguments = shlex.split(command)
        if program != "barnabas":
            piped = subprocess.run(["sh", "-c", command], input=piped, capture_output=True, check=True).stdout
            continue
        output = seen if is_last else BytesIO()
        with (
            TextIOWrapper(BytesIO(piped)) as stdin,
            TextIOWrapper(_Kept(output), write_through=True) as stdout,
            TextIOWrapper(_Kept(seen), write_through=True) as stderr,
            patch.object(sys, "stdin", stdin),
            redirect_stdout(stdout),
            redirect_stderr(stderr),
            pytest.MonkeyPatch.context() as environment,
        ):
            environment.setenv("BARNABAS_BOOTSTRAP", bootstrap)
            environment.setattr(sys, "excepthook", sys.excepthook)
            main.run(arguments)
            stdout.flush()
        piped = output.getvalue()
    return "".join(f"{shown.rstrip()}\n" for shown in seen.getvalue().decode().splitlines())


class _Kept(BytesIO):
    """Passes on what is written, and does not end with the text stream around it."""

    def __init__(self, target: BytesIO) -> None:
        super().__init__()
        self._target = target

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return self._target.write(data)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main.make_app(), list(arguments))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Through the entry point, which is where errors become lines."""
    status = main.run(list(arguments))
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def assert_no_broker_answers(capsys: pytest.CaptureFixture[str], nobody: str, command: list[str]) -> None:
    """The command says so in one line, with what to do."""
    status, out, err = run(capsys, *command, "--bootstrap", nobody)
    assert (status, out) == (1, "")
    assert err == f"barnabas: no broker answers at {nobody}; start one with 'barnabas up'\n"
