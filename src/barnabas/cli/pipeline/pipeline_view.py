"""How `barnabas pipeline run` shows its queries: a live table on a terminal, plain lines into a pipe or a file."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.base.clock import SystemClock
from barnabas.cli.output import human_bytes, plural, remark, say

if TYPE_CHECKING:
    from rich.table import Table

    from barnabas.pipelines.progress import QueryView

_COLUMNS: Final = ("QUERY", "STATE", "BATCH", "ROWS/S", "LAG", "BATCH TIME", "KEPT ROWS", "KEPT", "LATE", "BAD")
_QUIET_SECONDS: Final = 60.0


def make_screen(pipeline: str) -> "Screen":
    return LiveScreen(pipeline) if sys.stdout.isatty() else LineScreen()


class Screen(ABC):
    """Where a run speaks."""

    def __enter__(self) -> None:  # noqa: B027 - there may be nothing to prepare
        pass

    def __exit__(self, *_: object) -> None:  # noqa: B027 - nor to put back
        pass

    @abstractmethod
    def show(self, views: "list[QueryView]") -> None: ...

    def tell(self, text: str) -> None:
        remark(text)

    def show_rows(self, sink: str, batch_id: int, columns: list[str], rows: list[list[str]], total: int) -> None:
        if not total:
            return
        widths = [max(len(text) for text in column) for column in zip(columns, *rows, strict=True)]
        lines = [f"{sink}, batch {batch_id}: {plural(total, 'row')}"]
        lines += [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in (columns, *rows)
        ]
        if total > len(rows):
            lines.append(f"… and {total - len(rows):,} more")
        self.print_block("\n".join(lines))

    def print_block(self, text: str) -> None:
        say(text)
        sys.stdout.flush()


class LineScreen(Screen):
    """A line for each query whenever it has done a batch, and now and then while it rests."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._said: dict[str, tuple[tuple[int, str], float]] = {}

    def show(self, views: "list[QueryView]") -> None:
        for view in views:
            now = self._clock.monotonic()
            said, at = self._said.get(view.name, ((-1, ""), float("-inf")))
            if said != (view.batch_id, view.state) or now - at > _QUIET_SECONDS:
                self._said[view.name] = ((view.batch_id, view.state), now)
                say(line(view))
        sys.stdout.flush()


def line(view: "QueryView") -> str:
    parts = [f"{view.name}: {view.state}"]
    if view.batch_id >= 0:
        parts.append(f"batch {view.batch_id} in {view.batch_ms / 1000:.1f} s")
        parts.append(f"{view.rows_per_second:,.0f} rows/s")
    if view.lag is not None:
        parts.append(f"lag {view.lag:,}")
    if view.state_rows:
        parts.append(f"{plural(view.state_rows, 'row')} ({human_bytes(view.state_bytes)}) kept")
    if view.late_rows:
        parts.append(f"{view.late_rows:,} late")
    if view.bad_rows:
        parts.append(f"{view.bad_rows:,} bad")
    if view.problem:
        parts.append(view.problem)
    return ", ".join(parts)


class LiveScreen(Screen):
    """A table that keeps its place; other lines go above it."""

    def __init__(self, pipeline: str) -> None:
        from rich.live import Live

        from barnabas.cli.output import console

        self._pipeline = pipeline
        self._console = console()
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, views: "list[QueryView]") -> None:
        self._live.update(_table(views), refresh=True)

    def tell(self, text: str) -> None:
        self._console.print(text, style="yellow")

    def print_block(self, text: str) -> None:
        self._console.print(text)


def _table(views: "list[QueryView]") -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in ("QUERY", "STATE") else "right", no_wrap=True)
    for view in views:
        table.add_row(
            view.name,
            view.state,
            str(view.batch_id) if view.batch_id >= 0 else "",
            f"{view.rows_per_second:,.0f}",
            "" if view.lag is None else f"{view.lag:,}",
            f"{view.batch_ms / 1000:.1f} s",
            f"{view.state_rows:,}",
            human_bytes(view.state_bytes),
            f"{view.late_rows:,}",
            f"{view.bad_rows:,}",
            style={"waiting": "red", "done": "green"}.get(view.state, ""),
        )
    return table


def summary(views: "list[QueryView]") -> Iterator[str]:
    """What each query did, after the end."""
    for view in views:
        text = f"{view.name}: {plural(view.input_rows, 'record')} read"
        if view.lag is not None:
            text += f", lag {view.lag:,}"
        if view.late_rows:
            text += f", {view.late_rows:,} late"
        if view.bad_rows:
            text += f", {view.bad_rows:,} bad"
        yield text
