"""This checkout's broker beside that of an earlier commit, in alternating rounds: is anything slower than it was?

    git worktree add ../earlier COMMIT && (cd ../earlier && python setup.py build_ext --inplace)
    python -m benchmarks.compare ../earlier --rounds 7

Both brokers run at the same time and get the same load in turns, always from this checkout's load generator. Every
figure is given as a gain: 1.10 is 10 % faster, or 10 % cheaper, than the earlier broker. A figure whose whole
interval lies below `GAIN_MIN` is worse; one whose interval only reaches below is not shown to be, and more rounds
tell more. Ends with status 1 when a figure is worse.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from rich.console import Console
from rich.table import Table
from tests.support.kafka import PROJECT_DIRECTORY, free_port

from benchmarks.broker import IN_FLIGHT, Figure, LoadProcessFailed, Measured, Options, Subject, loads_of, measure_rounds
from benchmarks.broker_load import LoadFailed, Outcome
from benchmarks.broker_nodes import Barnabas, RunningNode
from benchmarks.groups_load import TOPIC as GROUPED
from benchmarks.paired import PairedRatio, paired_ratio
from benchmarks.report import Report

GAIN_MIN: Final = 0.97
_COSTS: Final = ("µs", "s/GB")
"""Units of which less is better."""


class NotMeasurable(Exception):  # noqa: N818
    """The other checkout cannot be run as this one is; the message says why."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of both brokers."""

    name: str
    unit: str
    base: float
    this: float
    gain: PairedRatio

    @property
    def is_worse(self) -> bool:
        return self.gain.high < GAIN_MIN


def check_checkout(checkout: Path) -> None:
    """Whether a checkout has all that makes its broker fast, or it would be an unequal comparison."""
    sources = sorted((checkout / "src" / "barnabas").rglob("_*.pyx"))
    if not sources:
        raise NotMeasurable(f"{checkout} is no checkout of Barnabas")
    for source in sources:
        if not list(source.parent.glob(f"{source.stem}.*.so")):
            raise NotMeasurable(f"{source} is not compiled: run `python setup.py build_ext --inplace` in {checkout}")


def commits_on_64(seconds: float) -> Measured:
    arguments = ("commit", "--seconds", str(seconds), "--connections", "64", "--depth", str(IN_FLIGHT))
    return Measured(
        "OffsetCommits on 64 connections",
        "",
        arguments,
        (
            Figure("OffsetCommit, 64 connections", "1/s", lambda outcome: outcome.requests / outcome.seconds),
            Figure("OffsetCommit, CPU", "µs", lambda outcome: outcome.cpu_seconds / outcome.requests * 1e6),
        ),
        program="benchmarks.groups_load",
    )


def compared_loads(seconds: float) -> tuple[Measured, ...]:
    return (*loads_of(seconds), commits_on_64(seconds))


def compared(figure: Figure, base: Sequence[Outcome], this: Sequence[Outcome]) -> Compared:
    bases, these = [figure.of(one) for one in base], [figure.of(one) for one in this]
    gain = paired_ratio(bases, these) if figure.unit in _COSTS else paired_ratio(these, bases)
    return Compared(figure.name, figure.unit, statistics.median(bases), statistics.median(these), gain)


def started(stack: ExitStack, name: str, checkout: Path, directory: Path) -> RunningNode:
    """The broker of a checkout, which runs until the stack ends."""
    check_checkout(checkout)
    port = free_port()
    node = Barnabas(directory / name, port, checkout)
    node.name = name
    node.prepare()
    running = RunningNode(node, port, directory / name / "output")
    stack.callback(running.stop)
    return running


def measured(
    report: Report, base: Path, options: Options, loads: Callable[[float], Sequence[Measured]]
) -> list[Compared]:
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        subjects = []
        for name, checkout in (("base", base), ("this", PROJECT_DIRECTORY)):
            running = started(stack, name, checkout, directory)
            subject = Subject(running, running.start_seconds)
            subject.create_topic(GROUPED)
            subjects.append(subject)
        measure_rounds(report, subjects, loads, options)
        of_base, of_this = subjects
        return [
            compared(figure, of_base.outcomes[load.title], of_this.outcomes[load.title])
            for load in loads(options.seconds)
            for figure in load.figures
        ]


def show(console: Console, results: Sequence[Compared]) -> None:
    table = Table(title="this checkout beside the earlier one")
    for heading in ("what", "base", "this", "unit", "gain (90 % interval)", ""):
        table.add_column(heading, justify="left" if heading in ("what", "unit", "") else "right")
    for one in results:
        mark = "[red]worse[/red]" if one.is_worse else ""
        table.add_row(one.name, _number(one.base), _number(one.this), one.unit, str(one.gain), mark)
    console.print(table)


def _number(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base", type=Path, help="a checkout of an earlier commit, with its compiled modules in place")
    parser.add_argument("--rounds", type=int, default=7, help="alternating rounds, at least 2")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each load in each round")
    parser.add_argument("--warm-up", type=float, default=10.0, help="seconds for each broker before the first round")
    parser.add_argument("--only", help="loads whose title contains this")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    options = Options(rounds=max(2, chosen.rounds), seconds=chosen.seconds, warm_up_seconds=chosen.warm_up)
    report = Report(Console(stderr=chosen.json))
    try:
        results = measured(report, chosen.base.resolve(), options, partial(_chosen_loads, chosen.only or ""))
    except (NotMeasurable, LoadProcessFailed, LoadFailed, KafkaException) as problem:
        print(problem, file=sys.stderr)
        return 1
    if chosen.json:
        print(json.dumps([asdict(one) for one in results], indent=2))
    else:
        show(report.console, results)
    return 1 if any(one.is_worse for one in results) else 0


def _chosen_loads(part: str, seconds: float) -> list[Measured]:
    return [load for load in compared_loads(seconds) if part in load.title]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
