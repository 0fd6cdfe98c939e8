"""The life of a connection: every step of the table is taken, and no other."""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import product

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.net.connection import TRANSITIONS, Connection, Life
from barnabas.net.replies import ReplySlot
from barnabas.net.server import ServerOptions
from tests.support.network import LENGTH, Served, framed, run, serving


class PlayedTransport(asyncio.Transport):
    """Notes what is asked of it, and does nothing by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.written = bytearray()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


class Played:
    """One connection without a socket."""

    def __init__(self, served: Served) -> None:
        connection = served.server.admit("TEST", ("127.0.0.1", 1), served.make_handler)
        assert connection is not None
        self.served = served
        self.connection: Connection = connection
        self.transport = PlayedTransport()
        self.handler = served.handlers[-1]
        self.seen: set[tuple[Life, Life]] = set()

    @property
    def life(self) -> Life:
        return self.connection.life

    def do(self, event: str) -> None:
        before = self.life
        EVENTS[event](self)
        if self.life is not before:
            self.seen.add((before, self.life))

    def feed(self, data: bytes) -> None:
        self.connection.get_buffer(0)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def ask(self) -> None:
        if self.life is Life.OPEN:
            self.feed(framed(b"a"))

    def answer(self) -> None:
        for slot in self.slots():
            if not slot.is_completed:
                slot.complete(framed(b"answer"))

    def slots(self) -> "deque[ReplySlot]":
        return self.connection._slots.copy()

    def refuse(self) -> None:
        if self.life is Life.OPEN:
            self.feed(LENGTH.pack(-1))

    def fail(self) -> None:
        for slot in self.slots():
            if not slot.is_completed:
                slot.fail(BarnabasError("it failed"))

    def turn(self) -> None:
        self.served.server.replies.flush()


EVENTS: dict[str, Callable[[Played], None]] = {
    "made": lambda played: played.connection.connection_made(played.transport),
    "asked": Played.ask,
    "answered": Played.answer,
    "turn": Played.turn,
    "finish": lambda played: played.connection.finish(),
    "abort": lambda played: played.connection.abort(),
    "bad frame": Played.refuse,
    "failed": Played.fail,
    "lost": lambda played: played.connection.connection_lost(None),
}


def play(*events: str, options: ServerOptions | None = None) -> tuple[list[Life], PlayedTransport]:
    """The lives after each event, and what the transport was asked."""
    lives: list[Life] = []
    transports: list[PlayedTransport] = []

    async def scenario() -> None:
        async with serving(options) as served:
            played = Played(served)
            transports.append(played.transport)
            for event in events:
                played.do(event)
                lives.append(played.life)
            played.connection.connection_lost(None)

    run(scenario())
    return lives, transports[0]


@pytest.mark.parametrize(
    ("events", "lives", "asked_of_transport"),
    [
        (["made", "lost"], [Life.OPEN, Life.LOST], []),
        (["made", "abort", "lost"], [Life.OPEN, Life.CLOSED, Life.LOST], ["abort"]),
        (["made", "abort", "abort"], [Life.OPEN, Life.CLOSED, Life.CLOSED], ["abort", "abort"]),
        (["made", "bad frame"], [Life.OPEN, Life.CLOSED], ["abort"]),
        (["made", "asked", "failed"], [Life.OPEN, Life.OPEN, Life.CLOSED], ["abort"]),
        (["made", "finish"], [Life.OPEN, Life.CLOSED], ["close"]),
        # What was asked is answered first, whether the answer was ready or not.
        (
            ["made", "asked", "finish", "answered", "turn", "lost"],
            [Life.OPEN, Life.OPEN, Life.FINISHING, Life.FINISHING, Life.CLOSED, Life.LOST],
            ["pause", "close"],
        ),
        (
            ["made", "asked", "answered", "finish", "turn"],
            [Life.OPEN, Life.OPEN, Life.OPEN, Life.FINISHING, Life.CLOSED],
            ["pause", "close"],
        ),
        (
            ["made", "asked", "finish", "finish", "abort"],
            [Life.OPEN, Life.OPEN, Life.FINISHING, Life.FINISHING, Life.CLOSED],
            ["pause", "abort"],
        ),
        (["made", "asked", "finish", "lost"], [Life.OPEN, Life.OPEN, Life.FINISHING, Life.LOST], ["pause"]),
        (["made", "asked", "lost", "answered"], [Life.OPEN, Life.OPEN, Life.LOST, Life.LOST], []),
        # The last bytes of a connection that closes do not leave: the server's patience has an end.
        (["made", "finish", "abort"], [Life.OPEN, Life.CLOSED, Life.CLOSED], ["close", "abort"]),
        # A handshake is cut off: before it is made, in the moment in which it is, and reported twice.
        (["lost"], [Life.LOST], []),
        (["lost", "made", "lost"], [Life.LOST, Life.LOST, Life.LOST], ["abort"]),
        (["made", "lost", "lost"], [Life.OPEN, Life.LOST, Life.LOST], []),
        (["made", "lost", "abort"], [Life.OPEN, Life.LOST, Life.LOST], []),
        # It ends before it is made.
        (["abort", "made", "lost"], [Life.CLOSED, Life.CLOSED, Life.LOST], ["abort"]),
        (["finish", "made", "lost"], [Life.CLOSED, Life.CLOSED, Life.LOST], ["abort"]),
        (["finish", "abort", "lost"], [Life.CLOSED, Life.CLOSED, Life.LOST], []),
    ],
    ids=lambda value: ", ".join(value) if value and isinstance(value[0], str) else "",
)
def test_life_of_a_connection(events: list[str], lives: list[Life], asked_of_transport: list[str]) -> None:
    seen, transport = play(*events)
    assert seen == lives
    assert transport.calls == asked_of_transport


def test_finishing_connection_sends_the_answers_that_were_queued() -> None:
    _, transport = play("made", "asked", "asked", "finish", "answered", "turn")
    assert bytes(transport.written) == 2 * framed(b"answer")
    assert transport.calls == ["pause", "close"]


def test_every_step_of_the_table_is_taken_and_no_other() -> None:
    """All stories of four events, made or not; an assertion forbids what the table does not have."""
    seen: set[tuple[Life, Life]] = set()
    counted: list[tuple[int, int]] = []

    async def scenario() -> None:
        async with serving() as served:
            for events in product(EVENTS, repeat=4):
                for beginning in ((), ("made",)):
                    played = Played(served)
                    for event in (*beginning, *events):
                        played.do(event)
                    played.do("lost")
                    seen.update(played.seen)
                    assert played.life is Life.LOST
                    assert played.handler.closed.is_set()
            counted.append((served.server.counters.connections_open, len(served.server._connections)))

    run(scenario())
    assert seen == {(before, after) for before, afters in TRANSITIONS.items() for after in afters}
    assert counted == [(0, 0)]


def test_step_that_the_table_does_not_have_is_a_failed_assertion() -> None:
    async def scenario() -> None:
        async with serving() as served:
            played = Played(served)
            played.do("lost")
            with pytest.raises(AssertionError, match="from lost to open"):
                played.connection._become(Life.OPEN)

    run(scenario())


def test_connection_that_ended_before_it_was_made_is_not_watched_for_idleness() -> None:
    async def scenario() -> None:
        async with serving() as served:
            played = Played(served)
            played.do("lost")
            played.do("made")
            assert not any(played.connection in bucket for bucket in served.server._shared.idle._buckets)

    run(scenario())
