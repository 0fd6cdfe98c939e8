"""How old an answer may be when a client notes it."""

from barnabas.sim.checkers.delays import AFTER_SECONDS, USUAL_SECONDS, Delays
from barnabas.sim.histories.events import Happened, History


def test_answers_usually_arrive_at_once() -> None:
    assert Delays(History()).given_after("reader-1", 10.0) == 10.0 - USUAL_SECONDS


def test_fault_of_the_client_holds_answers_back() -> None:
    delays = Delays(
        History(
            [Happened(10.0, "reader-1", "cut", "both broker-1, for 3 s"), Happened(12.0, "reader-1", "pause", "5 s")]
        )
    )
    assert delays.given_after("reader-2", 14.0) == 14.0 - USUAL_SECONDS
    assert delays.given_after("reader-1", 9.0) == 9.0 - USUAL_SECONDS
    assert delays.given_after("reader-1", 14.0) < 10.0
    later = 17.0 + AFTER_SECONDS + 1.0
    assert delays.given_after("reader-1", later) == later - USUAL_SECONDS
