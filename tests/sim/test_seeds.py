"""Two hundred histories of one broker: none breaks a rule. `make sim` runs many more.

`python -m barnabas.sim --seed N` tells the story of one that fails; add `--shrink` for its shortest form.
"""

import pytest

from barnabas.sim.histories.plan import make_plan
from barnabas.sim.runs.log_capture import silent_logs
from tests.sim.examined import problems_of

SEEDS = 200
CHUNK = 20
OPERATIONS_MIN = 200
FAULTS_MIN = 5


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_history_of_these_seeds_has_a_problem(first: int) -> None:
    found: list[str] = []
    with silent_logs():
        for seed in range(first, first + CHUNK):
            plan = make_plan(seed)
            assert len(plan.operations) >= OPERATIONS_MIN
            assert len(plan.faults) >= FAULTS_MIN
            found += [f"seed {seed}: {problem}" for problem in problems_of(seed)]

    assert not found, "\n".join([*found, "replay: python -m barnabas.sim --seed N"])
