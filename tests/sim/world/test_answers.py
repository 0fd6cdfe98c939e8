"""The watch over requests: answers in order, late ones, none at all."""

import struct

import pytest

from barnabas.sim.world.answers import RequestWatch
from barnabas.wire.apis import ApiKey


class Watched:
    def __init__(self) -> None:
        self.now = 0.0
        self.reports: list[str] = []
        self.watch = RequestWatch("broker", "client", lambda: self.now, self.reports.append)

    def ask(self, correlation_id: int, api_key: ApiKey = ApiKey.METADATA, body: bytes = b"") -> None:
        request = struct.pack(">hhih", api_key, 9, correlation_id, 2) + b"me" + body
        for byte in struct.pack(">i", len(request)) + request:  # however it is cut
            self.watch.received(bytes([byte]))

    def answer(self, correlation_id: int) -> None:
        self.watch.sent(struct.pack(">ii", 6, correlation_id))
        self.watch.sent(b"ok")


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_answers_in_order_and_in_time_are_fine(watched: Watched) -> None:
    for number in range(3):
        watched.ask(number)
    for number in range(3):
        watched.now += 19
        watched.answer(number)
    watched.watch.look()
    assert watched.reports == []


def test_request_that_is_never_answered_is_reported(watched: Watched) -> None:
    watched.ask(4)
    watched.now = 61
    watched.watch.look()
    assert watched.reports == ["broker to client: request 4 (METADATA) has waited for an answer after 61.0 s"]


def test_member_may_wait_for_the_others(watched: Watched) -> None:
    watched.ask(4, ApiKey.JOIN_GROUP)
    watched.now = 300
    watched.watch.look()
    assert watched.reports == []


@pytest.mark.parametrize(
    ("acks", "reports"), [(0, []), (-1, ["broker to client: request 1 (PRODUCE) was passed over"])]
)
def test_only_a_produce_without_acks_may_be_passed_over(watched: Watched, acks: int, reports: list[str]) -> None:
    watched.ask(1, ApiKey.PRODUCE, b"\0\0" + struct.pack(">h", acks))
    watched.ask(2)
    watched.answer(2)
    assert watched.reports == reports


def test_answer_for_which_nobody_asked_is_reported(watched: Watched) -> None:
    watched.answer(7)
    assert watched.reports == ["broker to client: an answer with the id 7, for which nobody asked"]
