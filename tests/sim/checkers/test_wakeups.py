"""A reader that waits is woken."""

from barnabas.sim.checkers.wakeups import check_wakeups
from barnabas.sim.histories.events import Acked, Event, Happened, History, OperationEnded, Positioned, Shown
from tests.sim.checkers.written import PLACE


def waiting(shown_at: float, *more: Event) -> list[str]:
    """The reader reads from 30 to 40 s and stands at offset 5, which is acknowledged at 35 s."""
    events: list[Event] = [
        Positioned(30.0, "reader-1", PLACE, 5),
        Acked(35.0, "producer-1", PLACE, 5, 1),
        Shown(shown_at, "reader-1", PLACE, 5, 6, 6, ()),
        OperationEnded(40.0, "reader-1", "read", 10.0),
        *more,
    ]
    return list(check_wakeups(History(sorted(events, key=lambda event: event.at))))


def test_record_that_is_shown_at_once_passes() -> None:
    assert waiting(35.02) == []


def test_record_that_is_shown_late_is_found() -> None:
    assert waiting(35.5) == [
        "reader-1 waited for offset 5 of plain-0, which was acknowledged at 35.000 s, and was shown it at 35.500 s"
    ]


def test_fault_not_long_before_excuses() -> None:
    assert waiting(35.5, Happened(20.0, "broker-1", "pause")) == []
    assert waiting(35.5, Happened(10.0, "broker-1", "pause"))


def test_reader_that_came_to_the_offset_later_did_not_wait() -> None:
    assert waiting(35.5, Positioned(35.3, "reader-1", PLACE, 5)) == []
