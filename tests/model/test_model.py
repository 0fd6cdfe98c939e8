"""The rules of replication: no history breaks the promise with them, and some history does without any one of them."""

import pytest

from tests.model import traces
from tests.model.dropped_rules import DROPPED
from tests.model.search import replay, search_breadth_first, walk
from tests.model.traces import BUDGET
from tests.model.world import Action, Budget

WALKS = 300
WORLDS = 3_000

TRACES = {name: trace for name, trace in vars(traces).items() if name.isupper() and isinstance(trace, tuple)}


def test_short_histories_keep_the_promise() -> None:
    found, worlds = search_breadth_first(Budget(), WORLDS)
    assert found is None, found
    assert worlds >= WORLDS


@pytest.mark.parametrize("seeds", [range(start, start + WALKS // 3) for start in range(0, WALKS, WALKS // 3)], ids=str)
def test_histories_at_random_keep_the_promise_and_heal(seeds: range) -> None:
    found = [found for seed in seeds if (found := walk(BUDGET, seed)) is not None]
    assert not found, found[0]


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES)
def test_directed_history_keeps_the_promise(trace: tuple[Action, ...]) -> None:
    found = replay(trace, BUDGET)
    assert found is None, found


@pytest.mark.parametrize("rule", DROPPED)
def test_rule_that_is_left_out_breaks_the_promise(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drop, trace = DROPPED[rule]
    drop(monkeypatch)
    assert replay(trace, BUDGET) is not None
