"""Histories of three brokers that replicate, on a simulated ZooKeeper: none breaks a rule.

`make sim BROKERS=3`, 5 or 7 runs many more.
"""

import pytest

from barnabas.sim.histories.plan import make_plan
from barnabas.sim.runs.log_capture import silent_logs
from tests.sim.examined import problems_of

BROKERS = 3
SEEDS = 26
"""About a minute of CPU time."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_history_of_three_brokers_has_a_problem(seed: int) -> None:
    with silent_logs():
        problems = problems_of(seed, BROKERS)
    assert not problems, f"replay: python -m barnabas.sim --seed {seed} --brokers {BROKERS}"


def test_plans_of_a_cluster_replicate_and_disturb_what_a_single_broker_does_not_have() -> None:
    plans = [make_plan(seed, brokers=BROKERS) for seed in range(SEEDS)]
    kinds = {fault.kind for plan in plans for fault in plan.faults}
    assert {"stop_zookeeper", "cut_zookeeper", "cut_brokers", "expire"} <= kinds
    assert {plan.settings["default.replication.factor"] for plan in plans} == {"3"}
    minima = {plan.settings["min.insync.replicas"] for plan in plans}
    minima |= {dict(topic.configs).get("min.insync.replicas", "") for plan in plans for topic in plan.topics}
    assert minima == {"", "1", "2"}
