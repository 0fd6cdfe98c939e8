"""Finds connections on which nothing has happened for `connections.max.idle.ms`, with one timer for all of them.

A connection notes the wheel's current turn whenever bytes come or go: that is all it pays. The wheel has one bucket per
turn of the idle time; when a bucket comes due, connections that have been active since move to the bucket in
which they would become idle. So a connection closes between 1 and 1 + 1/16 idle times after its last byte.
"""

import asyncio
from typing import Final, Protocol

_TURNS_PER_IDLE_TIME: Final = 16


class IdleWatched(Protocol):
    active_turn: int
    idle_bucket: int

    @property
    def is_awaiting_answer(self) -> bool:
        """Requests are being worked on: not idle, however long it takes."""
        ...

    def close_idle(self) -> None: ...


class IdleWheel:
    __slots__ = ("_buckets", "_loop", "_timer", "_turn_seconds", "turn")

    def __init__(self, loop: asyncio.AbstractEventLoop, idle_seconds: float | None) -> None:
        self._loop = loop
        self._turn_seconds = None if idle_seconds is None else idle_seconds / _TURNS_PER_IDLE_TIME
        self._buckets: list[dict[IdleWatched, None]] = [{} for _ in range(_TURNS_PER_IDLE_TIME + 1)]
        self._timer: asyncio.TimerHandle | None = None
        self.turn = 0

    def start(self) -> None:
        if self._turn_seconds is not None:
            self._timer = self._loop.call_later(self._turn_seconds, self._advance)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, watched: IdleWatched) -> None:
        watched.active_turn = self.turn
        self._place(watched, self.turn + _TURNS_PER_IDLE_TIME)

    def discard(self, watched: IdleWatched) -> None:
        self._buckets[watched.idle_bucket].pop(watched, None)

    def _place(self, watched: IdleWatched, turn: int) -> None:
        watched.idle_bucket = turn % len(self._buckets)
        self._buckets[watched.idle_bucket][watched] = None

    def _advance(self) -> None:
        self.turn += 1
        index = self.turn % len(self._buckets)
        due, self._buckets[index] = self._buckets[index], {}
        for watched in due:
            if watched.is_awaiting_answer:
                watched.active_turn = self.turn
            if watched.active_turn + _TURNS_PER_IDLE_TIME <= self.turn:
                watched.close_idle()
            else:
                self._place(watched, watched.active_turn + _TURNS_PER_IDLE_TIME)
        self.start()
