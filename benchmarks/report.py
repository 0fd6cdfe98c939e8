"""Collects measurements, compares them with their targets, and prints them for a person or as JSON."""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Measurement:
    name: str
    value: float
    unit: str
    target: str
    is_met: bool


class Report:
    def __init__(self, console: Console) -> None:
        self.console = console
        self.measurements: list[Measurement] = []

    def say(self, text: str) -> None:
        """What is measured now, so that nobody waits before a silent terminal."""
        self.console.print(f"[dim]… {text}[/dim]")

    def fact(self, name: str, value: float, unit: str) -> None:
        """A figure that has no target and gives others their meaning."""
        self.measurements.append(Measurement(name, value, unit, "", True))

    def at_least(self, name: str, value: float, unit: str, bound: float) -> None:
        self.measurements.append(Measurement(name, value, unit, f"≥ {bound:g}", value >= bound))

    def at_most(self, name: str, value: float, unit: str, bound: float) -> None:
        self.measurements.append(Measurement(name, value, unit, f"≤ {bound:g}", value <= bound))

    def print(self, *, as_json: bool) -> None:
        if as_json:
            self.print_json()
        else:
            self.print_table()

    def print_table(self) -> None:
        table = Table(title="Barnabas, measured")
        table.add_column("what")
        table.add_column("measured", justify="right")
        table.add_column("unit")
        table.add_column("to reach")
        table.add_column("")
        for one in self.measurements:
            mark = "" if not one.target else "[green]met[/green]" if one.is_met else "[red]missed[/red]"
            table.add_row(
                one.name, f"{one.value:,.3g}" if one.value < 1000 else f"{one.value:,.0f}", one.unit, one.target, mark
            )
        self.console.print(table)

    def print_json(self) -> None:
        print(json.dumps([asdict(one) for one in self.measurements], indent=2))


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternating_medians(rounds: int, *works: Callable[[], object]) -> list[float]:
    """The median time of each, taken in turns, so that what disturbs the machine disturbs all of them."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for slot, work in enumerate(works):
            times[slot].append(seconds(work))
    return [statistics.median(one) for one in times]
