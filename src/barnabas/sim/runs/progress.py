"""What is shown while histories run: a bar on a terminal, a line now and then elsewhere. On standard error."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from barnabas.base.clock import Clock
from barnabas.cli.output import console, plural, remark
from barnabas.sim.runs.series import Tally

LINE_SECONDS: Final = 30.0


@contextmanager
def series_progress(total: int | None, clock: Clock, *, is_shown: bool) -> Iterator[Callable[[Tally], None]]:
    """`total`: how many histories there are to run, if that is known."""
    if not is_shown:
        yield lambda tally: None
    elif sys.stderr.isatty():
        with _bar("histories", total) as move:
            yield lambda tally: move(tally.histories, _details(tally))
    else:
        yield _Lines(total, clock).show


@contextmanager
def shrinking_progress(seed: int, runs_max: int, *, is_shown: bool) -> Iterator[Callable[[int, str], None]]:
    """To be called with the number of runs, and how short the plan is by now."""
    if is_shown and sys.stderr.isatty():
        with _bar(f"shrinking seed {seed}", runs_max) as move:
            yield move
    else:
        yield lambda runs, details: None


class _Lines:
    """For logs of a build server: a line every half minute."""

    def __init__(self, total: int | None, clock: Clock) -> None:
        self._of = "" if total is None else f" of {total:,}"
        self._clock = clock
        self._next = clock.monotonic() + LINE_SECONDS

    def show(self, tally: Tally) -> None:
        if self._clock.monotonic() >= self._next:
            self._next += LINE_SECONDS
            remark(f"{tally.histories:,}{self._of} histories, {_details(tally)}")


def _details(tally: Tally) -> str:
    return (
        f"{tally.rates()}, {tally.virtual_seconds / 3600:.2f} virtual hours, {plural(len(tally.findings), 'finding')}"
    )


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    from rich import progress as parts

    columns = (
        parts.TextColumn("{task.description}"),
        parts.BarColumn(bar_width=20),
        parts.MofNCompleteColumn(),
        parts.TextColumn("{task.fields[details]}"),
        parts.TimeElapsedColumn(),
    )
    drawn_on = console(on_error_stream=True)
    is_shared = sys.stdout.isatty()  # results then stand above the bar, and else go where they were sent
    with parts.Progress(*columns, console=drawn_on, transient=True, redirect_stdout=is_shared) as bar:
        task = bar.add_task(what, total=total, details="")
        yield lambda done, details: bar.update(task, completed=done, details=details)
