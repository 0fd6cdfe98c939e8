"""One seed is one history: in any process, whatever the order of its sets."""

import os
import subprocess
import sys
from functools import cache

import pytest

SEEDS = (1, 2, 3)
PROGRAM = """
import logging, sys
from barnabas.sim.histories.director import Director
from barnabas.sim.histories.plan import make_plan

logging.disable(logging.CRITICAL)
for seed in sys.argv[1:]:
    outcome = Director(make_plan(int(seed))).run()
    print(outcome.trace, outcome.events, repr(outcome.seconds))
"""


@cache
def traces(hash_seed: str) -> list[str]:
    """A digest of everything that happened in each history, from a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("index", range(len(SEEDS)))
def test_two_processes_with_different_hash_seeds_give_one_trace(index: int) -> None:
    assert traces("1")[index] == traces("4242")[index]


def test_two_seeds_give_different_traces() -> None:
    assert len(set(traces("1"))) == len(SEEDS)
