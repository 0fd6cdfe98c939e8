"""What a person sees of a local cluster: its brokers in a table, and the lines of their logs.

On a terminal the table stays below the lines and shows each broker's state. Into a pipe or a file go the lines, to
standard error, and the table once, when all brokers are ready.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple


class BrokerRow(NamedTuple):
    broker_id: int
    address: str
    metrics_port: int | None
    pid: int | None
    state: str

    def cells(self, has_metrics: bool) -> tuple[str, ...]:
        metrics = [_number(self.metrics_port)] if has_metrics else []
        return (_number(self.broker_id), self.address, *metrics, _number(self.pid), self.state)


class StateTable(NamedTuple):
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]

    @classmethod
    def of(cls, rows: "Sequence[BrokerRow]") -> "StateTable":
        """Without the column for metrics where nobody serves any."""
        has_metrics = any(row.metrics_port is not None for row in rows)
        columns = ("broker#", "address", *(["metrics port#"] if has_metrics else []), "pid#", "state")
        return cls(columns, [row.cells(has_metrics) for row in rows])


class ClusterScreen(ABC):
    """Used with `with`."""

    def __enter__(self) -> "ClusterScreen":
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 - there may be nothing to put back
        """After the last line."""

    @abstractmethod
    def line(self, name: str, text: str) -> None:
        """A line of a broker's log."""

    @abstractmethod
    def note(self, text: str) -> None:
        """What the command itself has to say."""

    @abstractmethod
    def show(self, rows: Sequence[BrokerRow]) -> None:
        """The brokers as they are now."""

    @abstractmethod
    def ready(self, text: str, bootstrap: str, rows: Sequence[BrokerRow]) -> None:
        """All brokers are ready, for the first time."""


class PlainScreen(ClusterScreen):
    def line(self, name: str, text: str) -> None:
        sys.stderr.write(f"{name} | {text}\n")
        sys.stderr.flush()

    def note(self, text: str) -> None:
        from barnabas.cli.output import remark

        remark(text)

    def show(self, rows: Sequence[BrokerRow]) -> None:
        """A file would only grow by it."""

    def ready(self, text: str, bootstrap: str, rows: Sequence[BrokerRow]) -> None:
        from barnabas.cli.output import say, say_table

        say(text)
        say_table(*StateTable.of(rows))
        sys.stdout.flush()


class TerminalScreen(ClusterScreen):
    def __init__(self) -> None:
        from rich.live import Live

        from barnabas.cli.output import console

        self._console = console()
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> "ClusterScreen":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def line(self, name: str, text: str) -> None:
        from rich.text import Text

        self._console.print(Text.assemble((f"{name} | ", "dim"), text))

    def note(self, text: str) -> None:
        self._console.print(text, style="yellow")

    def show(self, rows: Sequence[BrokerRow]) -> None:
        from barnabas.cli.output import make_table

        self._live.update(make_table(*StateTable.of(rows)), refresh=True)

    def ready(self, text: str, bootstrap: str, rows: Sequence[BrokerRow]) -> None:
        from barnabas.cli.broker.serving import what_to_try

        for line in (f"{text}; Ctrl-C stops it.", *what_to_try(bootstrap)):
            self._console.print(line)


def make_screen() -> ClusterScreen:
    return TerminalScreen() if sys.stdout.isatty() else PlainScreen()


def _number(number: int | None) -> str:
    return "" if number is None else str(number)
