"""A sequence is refused only after a loss of power."""

from barnabas.sim.checkers.refusals import check_refusals
from tests.sim.checkers.written import PLACE, Written

REFUSAL = "OUT_OF_ORDER_SEQUENCE_NUMBER: plain-0: producer 0 in epoch 0 sent sequence 7, but 5 comes next"


def found(written: Written) -> list[str]:
    return list(check_refusals(written.history))


def test_other_failures_pass() -> None:
    written = Written("plain")
    written.sent(PLACE, "a")
    written.failed(PLACE, "a")
    assert not found(written)


def test_refused_sequence_is_found() -> None:
    written = Written("plain")
    written.sent(PLACE, "a")
    written.failed(PLACE, "a", REFUSAL)
    (problem,) = found(written)
    assert problem == f"at {written.at:.3f} s producer-1 was refused, and no loss of power explains it: {REFUSAL}"


def test_loss_of_power_before_it_excuses_and_one_after_it_does_not() -> None:
    written = Written("plain")
    written.sent(PLACE, "a")
    written.happened("power loss")
    written.failed(PLACE, "a", REFUSAL)
    assert not found(written)
    written = Written("plain")
    written.sent(PLACE, "a")
    written.failed(PLACE, "a", REFUSAL)
    written.happened("power loss")
    assert found(written)
