"""How the demo speaks while it runs: a view that keeps its place on a terminal, plain lines into a pipe or a file."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.base.clock import SystemClock
from barnabas.cli.output import plural, remark, say

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINE_SECONDS: Final = 5.0
_BAR_WIDTH: Final = 30


@dataclass(frozen=True, slots=True)
class Status:
    """Where the demo is: what it does since when, and what there is to see of the pipeline."""

    doing: str
    seconds: float
    seconds_total: float | None = None
    records_in: int = 0
    alerts: int = 0
    last_alert: str = ""
    lag: int | None = None
    fleet: "FleetView | None" = None

    def text(self) -> str:
        parts = [f"{self.doing} … {self.seconds:.1f} s"]
        if self.records_in:
            lag = "not known yet" if self.lag is None else f"{self.lag:,}"
            parts += [f"{plural(self.records_in, 'record')} in", plural(self.alerts, "alert"), f"lag {lag}"]
        if self.last_alert:
            parts.append(f"last alert: {self.last_alert}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class FleetView:
    """The rows that the pipeline's console sink showed last."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class DemoView:
    """Plain lines: what is new of what it does, and now and then how far it is."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._said_at = float("-inf")
        self._doing = ""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, *_: object) -> None:
        """Nothing to put back."""

    def show(self, status: Status) -> None:
        now = self._clock.monotonic()
        if status.doing == self._doing and now - self._said_at < _LINE_SECONDS:
            return
        self._doing, self._said_at = status.doing, now
        self.line(status.text())

    def line(self, text: str) -> None:
        """A line that stays."""
        say(text)
        sys.stdout.flush()

    def warn(self, text: str) -> None:
        remark(text)


class LiveDemoView(DemoView):
    """The status, and below it the fleet, at the bottom of the terminal; lines that stay go above."""

    def __init__(self) -> None:
        super().__init__()
        from rich.live import Live

        from barnabas.cli.output import console

        self._console = console()
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, status: Status) -> None:
        self._live.update(_layout(status), refresh=True)

    def line(self, text: str) -> None:
        self._console.print(text)

    def warn(self, text: str) -> None:
        self._console.print(text, style="yellow")


def make_view() -> DemoView:
    return LiveDemoView() if sys.stdout.isatty() else DemoView()


def _layout(status: Status) -> "RenderableType":
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    parts: list[RenderableType] = [Text(status.text(), style="cyan")]
    if status.seconds_total is not None:
        parts.append(ProgressBar(status.seconds_total, min(status.seconds, status.seconds_total), width=_BAR_WIDTH))
    if status.fleet is not None:
        parts.append(_fleet_table(status.fleet))
    return Group(*parts)


def _fleet_table(fleet: FleetView) -> "RenderableType":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in fleet.columns:
        table.add_column(name.upper().replace("_", " "))
    for row in fleet.rows:
        table.add_row(*row)
    return table
