"""All checkers are in the table, and a good history passes them all."""

from pathlib import Path

import barnabas.sim.checkers
from barnabas.sim.checkers.table import CHECKERS, check
from tests.sim.checkers.written import PLACE, Written


def test_every_checker_is_in_the_table() -> None:
    (directory,) = barnabas.sim.checkers.__path__
    modules = {path.stem for path in Path(directory).glob("*.py") if "def check_" in path.read_text()}
    assert modules == {checker.__module__.rpartition(".")[2] for checker in CHECKERS.values()}  # type: ignore[attr-defined]


def test_good_history_passes_all() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.positioned(PLACE, 0)
    written.shown(PLACE, 0, 1, (0, "a"))
    written.final(PLACE, (0, "a"))
    written.final_topic("plain")
    assert not check(written.history)


def test_problem_names_its_checker() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.final(PLACE)
    written.final_topic("plain")
    (problem,) = check(written.history)
    assert str(problem).startswith("acked records: b'a' of producer-1")
