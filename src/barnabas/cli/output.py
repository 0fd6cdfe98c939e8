"""How the commands speak: results on standard output, everything else on standard error.

On a terminal there are colours, tables that fit its width, and progress bars for work that takes a while. Into a pipe
or a file goes plain text, never wrapped and without progress, so that `grep` and `awk` see whole lines.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import typer

from barnabas.base.clock import SystemClock
from barnabas.storage.tools.findings import Finding, Severity

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_UNWRAPPED_WIDTH: Final = 10_000
_GAP: Final = 2
"""Between the columns of a table."""
_PROGRESS_SECONDS_MIN: Final = 1.0
"""Less is over before a bar could be read."""
_bar_consoles: "Final[list[Console]]" = []
"""Where a bar is drawn now: a line that is printed there stands above it, by another console it would stand in it."""
_STYLES: Final = {Severity.ERROR: "bold red", Severity.NOTE: "yellow"}


def console(*, on_error_stream: bool = False) -> "Console":
    """A rich console for one of the two streams. Made when needed: importing rich takes as long as some commands."""
    if on_error_stream and _bar_consoles:
        return _bar_consoles[-1]
    from rich.console import Console

    stream = sys.stderr if on_error_stream else sys.stdout
    width = None if stream.isatty() else _UNWRAPPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)


def say(text: str) -> None:
    """A line of the result."""
    sys.stdout.write(text + "\n")


def say_json(value: object) -> None:
    """One JSON object on one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")) + "\n")


def complain(text: str) -> None:
    """A line about what went wrong."""
    sys.stdout.flush()  # so that the complaint stands where it belongs when both streams go to one place
    console(on_error_stream=True).print(f"barnabas: {text}", style="red")


def remark(text: str) -> None:
    """A line that is not part of the result."""
    sys.stdout.flush()
    console(on_error_stream=True).print(text, style="yellow")


def confirm(question: str, otherwise: str) -> None:
    """Asks the person at the terminal; any answer but yes ends the command with exit status 1.

    It does not ask when standard input is no terminal: a script means what it says.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        return
    sys.stdout.flush()
    try:
        answer = None
        while answer not in ("y", "yes", "n", "no", ""):
            sys.stderr.write(f"{question} [y/N]: ")
            sys.stderr.flush()
            line = sys.stdin.readline()
            answer = line.strip().lower()
    except KeyboardInterrupt:
        sys.stderr.write("\n")  # the shell's prompt should not stand behind the question
        raise
    if not line:  # Ctrl-D
        sys.stderr.write("\n")
    if answer not in ("y", "yes"):
        remark(otherwise)
        raise typer.Exit(1)


def say_findings(findings: Sequence[Finding]) -> None:
    if not findings:
        return
    from rich.text import Text

    out = console()
    for finding in findings:
        out.print(Text.assemble((f"{finding.severity.value:5}", _STYLES[finding.severity]), f"  {finding}"))


def finding_fields(finding: Finding) -> dict[str, Any]:
    """A finding for `say_json`."""
    return {
        "severity": finding.severity.value,
        "path": finding.path,
        "position": finding.position,
        "offset": finding.offset,
        "problem": finding.problem,
    }


def fits(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a table stands on the terminal without broken lines. Into a pipe every one does."""
    out = console()
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    return not out.is_terminal or sum(widths) + _GAP * (len(widths) - 1) <= out.width


def say_table(columns: Sequence[str], rows: "Sequence[Sequence[str | Text]]") -> None:
    """`make_table`, printed."""
    console().print(make_table(columns, rows), soft_wrap=False)


def make_table(columns: Sequence[str], rows: "Sequence[Sequence[str | Text]]") -> "Table":
    """Columns whose names end in a number sign hold numbers and are aligned to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in columns:
        is_number = name.endswith("#")
        table.add_column(name.rstrip("#"), justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


@contextmanager
def progress(
    what: str, total: int | None, *, unit: str = "bytes", is_shown: bool = True
) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal that the returned function moves on; it comes when the work has taken a second.

    Without a total it counts. Into a pipe or a file there is none.
    """
    if not is_shown or not sys.stderr.isatty():
        yield _ignore
        return
    with ExitStack() as stack:
        yield _Progress(what, total, unit, stack).advance


def _ignore(count: int) -> None:
    """Progress that nobody sees."""


class _Progress:
    """Imports what draws it when there is something to draw."""

    def __init__(self, what: str, total: int | None, unit: str, stack: ExitStack) -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._stack = stack
        self._clock = SystemClock()
        self._shown_from = self._clock.monotonic() + _PROGRESS_SECONDS_MIN
        self._done = 0
        self._draw: Callable[[int], None] | None = None

    def advance(self, count: int) -> None:
        self._done += count
        if self._draw is not None:
            self._draw(self._done)
        elif self._clock.monotonic() >= self._shown_from:
            self._draw = self._open()

    def _open(self) -> Callable[[int], None]:
        from rich import progress as parts

        columns: list[parts.ProgressColumn] = [parts.TextColumn("{task.description}"), parts.BarColumn()]
        if self._unit != "bytes":
            columns += [parts.MofNCompleteColumn(), parts.TextColumn(self._unit)]
        elif self._total is None:
            columns.append(parts.FileSizeColumn())
        else:
            columns.append(parts.DownloadColumn())
        if self._total is not None:
            columns.append(parts.TimeRemainingColumn())
        drawn_on = console(on_error_stream=True)
        bar = self._stack.enter_context(parts.Progress(*columns, console=drawn_on, transient=True))
        _bar_consoles.append(drawn_on)
        self._stack.callback(_bar_consoles.remove, drawn_on)
        task = bar.add_task(self._what, total=self._total, completed=self._done)
        return lambda done: bar.update(task, completed=done)


def human_bytes(count: int) -> str:
    """A size as people say it."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def plural(count: int, noun: str) -> str:
    """'1 batch', '2 batches', '3,000 records'."""
    ending = "" if count == 1 else ("es" if noun.endswith(("ch", "x")) else "s")
    return f"{count:,} {noun}{ending}"
