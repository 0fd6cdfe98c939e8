"""Bars and remarks on a terminal."""

import io
import re
from contextlib import redirect_stderr

import pytest

from barnabas.cli import output
from barnabas.cli.output import progress, remark


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return FakeTerminal()


def test_short_work_draws_no_bar(terminal: FakeTerminal) -> None:
    with redirect_stderr(terminal), progress("copying", 100) as advance:
        advance(100)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(("total", "amount"), [(2000, "1.0/2.0 kB"), (None, "1.0 kB")])
def test_remark_stands_above_the_bar(
    terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch, total: int | None, amount: str
) -> None:
    monkeypatch.setattr(output, "_PROGRESS_SECONDS_MIN", 0.0)
    with redirect_stderr(terminal), progress("copying", total) as advance:
        advance(1000)
        remark("waiting")
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert "copying" in drawn
    assert amount in drawn
    erased, _, _ = drawn.partition("waiting\n")
    assert erased.endswith("\r\x1b[2K"), "the bar is erased before the line"
