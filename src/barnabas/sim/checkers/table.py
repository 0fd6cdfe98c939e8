"""The checkers by name, and how to ask them all."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.sim.checkers.acked_records import check_acked_records
from barnabas.sim.checkers.disks import check_disks
from barnabas.sim.checkers.seen_at_once import check_seen_at_once
from barnabas.sim.histories.events import History

Checker = Callable[[History], Iterable[str]]

CHECKERS: Final[Mapping[str, Checker]] = {
    "seen at once": check_seen_at_once,
    "acked records": check_acked_records,
    "disks": check_disks,
}


@dataclass(frozen=True, slots=True)
class Problem:
    checker: str
    text: str

    def __str__(self) -> str:
        return f"{self.checker}: {self.text}"


def check(history: History) -> list[Problem]:
    return [Problem(name, text) for name, checker in CHECKERS.items() for text in checker(history)]
