"""Histories of three brokers on a simulated ZooKeeper: none breaks a rule. `make sim BROKERS=5` runs many more."""

import pytest

from barnabas.sim.histories.examination import examine
from barnabas.sim.histories.plan import make_plan
from barnabas.sim.runs.log_capture import silent_logs

BROKERS = 3
SEEDS = 12


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_history_of_three_brokers_has_a_problem(seed: int) -> None:
    with silent_logs():
        problems = examine(make_plan(seed, brokers=BROKERS)).problems
    assert not problems, f"replay: python -m barnabas.sim --seed {seed} --brokers {BROKERS}"


def test_plans_of_a_cluster_disturb_what_a_single_broker_does_not_have() -> None:
    kinds = {fault.kind for seed in range(SEEDS) for fault in make_plan(seed, brokers=BROKERS).faults}
    assert {"stop_zookeeper", "cut_zookeeper", "cut_brokers"} <= kinds
