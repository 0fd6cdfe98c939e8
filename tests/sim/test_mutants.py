"""Each planted bug is caught: by a checker, with the seed that `make sim MUTANTS=1` has recorded, or by a scenario."""

from pathlib import Path

import pytest

from barnabas.sim.checkers.table import CHECKERS
from barnabas.sim.runs.log_capture import silent_logs
from barnabas.sim.scenarios.interpreter import ScenarioFailed, run
from barnabas.sim.scenarios.language import parse
from tests.sim.mutants.mutants import MUTANTS
from tests.sim.mutants.planting import Mutant
from tests.sim.mutants.record import read_record
from tests.sim.mutants.search import has_problems, problems_with

MUTANTS_MIN = 42
SEEDS_MAX = 500

PAGES = Path(__file__).parent / "scenarios"
CAUGHT = read_record()


BY_SEED = {name: mutant for name, mutant in MUTANTS.items() if mutant.page is None}
BY_PAGE = {name: mutant for name, mutant in MUTANTS.items() if mutant.page is not None}


@pytest.mark.parametrize("mutant", BY_SEED.values(), ids=BY_SEED)
def test_planted_bug_is_caught_and_the_code_without_it_passes(mutant: Mutant) -> None:
    caught = CAUGHT[mutant.name]
    with silent_logs():
        problems = problems_with(mutant, caught.seed)

        assert caught.checker in {problem.checker for problem in problems}, (
            f"seed {caught.seed} no longer catches it: python -m tests.sim.mutants --only {mutant.name}"
        )
        assert not has_problems(mutant, caught.seed)


@pytest.mark.parametrize("mutant", BY_PAGE.values(), ids=BY_PAGE)
def test_planted_bug_fails_its_scenario(mutant: Mutant) -> None:
    path = PAGES / f"{mutant.page}.txt"
    with silent_logs(), mutant.planted(), pytest.raises(ScenarioFailed):
        run(parse(path.read_text(), f"tests/sim/scenarios/{path.name}"))


def test_every_mutant_is_recorded_with_a_checker_that_should_catch_it() -> None:
    assert len(MUTANTS) >= MUTANTS_MIN
    assert set(CAUGHT) == set(BY_SEED)
    for name, caught in CAUGHT.items():
        assert caught.checker in MUTANTS[name].checkers
        assert caught.seed < SEEDS_MAX


def test_every_named_checker_exists() -> None:
    assert {checker for mutant in MUTANTS.values() for checker in mutant.checkers} <= set(CHECKERS)


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_leaves_nothing_behind(mutant: Mutant) -> None:
    before = vars(mutant.owner)[mutant.attribute]

    with mutant.planted():
        assert vars(mutant.owner)[mutant.attribute] is not before

    assert vars(mutant.owner)[mutant.attribute] is before
