"""When a broker is taken for dead: the decisions."""

from collections.abc import Sequence

import pytest

from barnabas.controller.suspicion import ENDS_MAX, PROBES_MAX, Inquiry, Step, Suspect, Suspicions, voters_about

HOUR_SECONDS = 3600
SUSPECT = Suspect(2, 100)
RESTARTED = Suspect(2, 200)


@pytest.mark.parametrize(
    ("about", "controller", "registered", "voters"),
    [
        (2, 1, [1, 2, 3], (1,)),
        (2, 2, [3, 2, 1, 4], (1, 3, 4)),
        (2, 3, [1, 2, 3], ()),
        (1, 1, [1, 2, 3], ()),
        (2, None, [1, 2, 3], ()),
        (2, 2, [2, 3], ()),
    ],
    ids=["the controller alone", "the peers", "the controller's matter", "itself", "no controller", "not registered"],
)
def test_voters_are_the_controller_or_its_peers(
    about: int, controller: int | None, registered: Sequence[int], voters: Sequence[int]
) -> None:
    assert voters_about(about, 1, controller, registered) == voters


@pytest.mark.parametrize(
    ("probes", "step"),
    [
        ([True], Step.PROBE),
        ([True, True], Step.END),
        ([False, True, True], Step.END),
        ([True, False, True], Step.PROBE),
        ([True, False, True, False], Step.DISMISS),
        ([False] * PROBES_MAX, Step.DISMISS),
    ],
)
def test_two_refusals_in_a_row_are_a_death(probes: list[bool], step: Step) -> None:
    inquiry = Inquiry(1, [1])
    for is_refused in probes:
        inquiry.probed(is_refused=is_refused)
    assert inquiry.step is step


@pytest.mark.parametrize(
    ("voters", "votes", "step"),
    [
        ([1, 3], 0, Step.DISMISS),
        ([1, 3], 1, Step.END),
        ([1, 3, 4], 0, Step.DISMISS),
        ([1, 3, 4], 1, Step.END),
        ([1, 3, 4, 5], 1, Step.DISMISS),
        ([1, 3, 4, 5], 2, Step.END),
    ],
)
def test_majority_of_the_peers_ends_the_session_of_the_controller(voters: list[int], votes: int, step: Step) -> None:
    inquiry = Inquiry(1, voters)
    for _ in range(2):
        inquiry.probed(is_refused=True)
    assert inquiry.step is Step.ASK
    assert inquiry.others == tuple(voters[1:])
    inquiry.answered(votes)
    assert inquiry.step is step


def test_only_peer_of_the_controller_asks_nobody() -> None:
    inquiry = Inquiry(1, [1])
    for _ in range(2):
        inquiry.probed(is_refused=True)
    assert inquiry.step is Step.END


def test_refused_connect_is_no_sign_where_no_connection_was_before() -> None:
    suspicions = Suspicions()
    assert not suspicions.connect_failed(SUSPECT, 0)
    assert suspicions.connection_closed(SUSPECT)
    assert suspicions.closed(2, 0) is None
    assert not suspicions.connect_failed(SUSPECT, 0.9)
    assert not suspicions.connect_failed(RESTARTED, 5)
    assert suspicions.connect_failed(SUSPECT, 5)


def test_one_inquiry_at_a_time_and_another_for_what_happened_meanwhile() -> None:
    suspicions = Suspicions()
    assert suspicions.connection_closed(SUSPECT)
    assert not suspicions.connection_closed(SUSPECT)
    assert suspicions.closed(2, 0) == SUSPECT
    assert not suspicions.connect_failed(SUSPECT, 10)
    assert suspicions.closed(2, 0) is None
    assert suspicions.connection_closed(SUSPECT)


def test_another_registration_is_another_suspect() -> None:
    suspicions = Suspicions()
    assert suspicions.connection_closed(SUSPECT)
    assert not suspicions.connection_closed(RESTARTED)
    assert suspicions.closed(2, 0) == RESTARTED
    assert not suspicions.connection_closed(SUSPECT)
    assert suspicions.closed(2, 0) is None


def test_sessions_of_one_broker_are_ended_a_few_times_an_hour() -> None:
    suspicions = Suspicions()
    for minute in range(ENDS_MAX):
        assert suspicions.may_end(2, minute * 60)
        suspicions.ended(2, minute * 60)
    assert not suspicions.may_end(2, HOUR_SECONDS - 1)
    assert suspicions.may_end(3, HOUR_SECONDS - 1)
    assert suspicions.may_end(2, HOUR_SECONDS)
    suspicions.ended(2, HOUR_SECONDS)
    assert not suspicions.may_end(2, HOUR_SECONDS + 59)
