"""Many seeds: which ones, in which order, for how long, and what they came to.

| `--seeds` | seeds |
|---|---|
| `200` | 0 to 199 |
| `300-399` | 300 to 399 |
| not given | 0, 1, 2, … until the time is up |

Seeds that the ledger has are not run again; those that failed with other sources come first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError
from barnabas.cli.output import plural
from barnabas.sim.runs.ledger import Ledger
from barnabas.sim.runs.verdicts import Verdict
from barnabas.sim.runs.workers import Workers

_COLLECT_SECONDS: Final = 0.5


class InvalidSeeds(BarnabasError, ValueError):  # noqa: N818 - named as the fact that it is
    """Not a number of seeds, and not a range."""


@dataclass(slots=True)
class Tally:
    """What a call has done so far; what earlier calls did is not in it."""

    seconds: float = 0.0
    """Real ones."""
    histories: int = 0
    operations: int = 0
    faults: int = 0
    virtual_seconds: float = 0.0
    findings: list[Verdict] = field(default_factory=list)
    earlier: list[Verdict] = field(default_factory=list)
    """Those of the seeds asked for that the ledger had."""

    def add(self, verdict: Verdict) -> None:
        self.histories += 1
        self.operations += verdict.operations
        self.faults += verdict.faults
        self.virtual_seconds += verdict.seconds
        if verdict.problems:
            self.findings.append(verdict)

    @property
    def all_findings(self) -> list[Verdict]:
        """Also of earlier calls."""
        return [*(verdict for verdict in self.earlier if verdict.problems), *self.findings]

    def rates(self) -> str:
        seconds = max(self.seconds, 0.001)
        return f"{self.histories / seconds:.2f} histories/s, {self.faults / seconds:.1f} faults/s"

    def describe(self) -> str:
        found = plural(len(self.findings), "finding") if self.findings else "nothing found"
        work = f"{plural(self.operations, 'operation')}, {plural(self.faults, 'fault')}"
        virtual = f"{self.virtual_seconds / 3600:.2f} hours of virtual time"
        return (
            f"{_histories(self.histories)} in {self.seconds:.1f} s ({self.rates()}): {work}, {virtual}, {found}"
            if self.histories
            else "no history was run"
        )


def parse_seeds(text: str) -> range:
    first, separator, last = text.partition("-")
    if not first.isdecimal() or (separator and not last.isdecimal()):
        raise InvalidSeeds(f"{text!r} is neither a number of seeds nor a range; write 200, or 300-399")
    seeds = range(int(first), int(last) + 1) if separator else range(int(first))
    if not seeds:
        raise InvalidSeeds(f"there is no seed in {text!r}")
    return seeds


def seeds_to_run(seeds: range | None, ledger: Ledger) -> Iterator[int]:
    """`seeds` None: without end."""
    again = [seed for seed in sorted(ledger.failed_before) if seeds is None or seed in seeds]
    yield from again
    for seed in count() if seeds is None else seeds:
        if seed not in ledger.done and seed not in again:
            yield seed


def known_results(seeds: range | None, ledger: Ledger) -> Tally:
    """What earlier calls found."""
    return Tally(earlier=[one for seed, one in sorted(ledger.done.items()) if seeds is None or seed in seeds])


def run_series(
    seeds: range | None,
    ledger: Ledger,
    workers: Workers,
    clock: Clock,
    *,
    seconds_max: float | None = None,
    on_verdict: Callable[[Tally, Verdict | None], None] = lambda tally, verdict: None,
) -> Tally:
    """Ends when all seeds are done or the time is up; histories that have begun are finished.

    `on_verdict` is called for each history that ends, and now and then with None, so that a clock can be shown.
    """
    tally = known_results(seeds, ledger)
    began = clock.monotonic()
    waiting = seeds_to_run(seeds, ledger)
    is_over = False
    while not is_over or workers.has_busy:
        while not is_over and workers.has_idle:
            seed = next(waiting, None)
            if seed is None or (seconds_max is not None and clock.monotonic() - began >= seconds_max):
                is_over = True
            else:
                workers.give(seed)
        verdicts = workers.collect(_COLLECT_SECONDS) if workers.has_busy else []
        tally.seconds = clock.monotonic() - began
        for verdict in verdicts:
            ledger.add(verdict)
            tally.add(verdict)
            on_verdict(tally, verdict)
        if not verdicts:
            on_verdict(tally, None)
    return tally


def _histories(number: int) -> str:
    return f"{number:,} histor{'y' if number == 1 else 'ies'}"
