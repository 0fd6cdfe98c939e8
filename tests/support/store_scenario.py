"""Scenarios that every `MetadataStore` is put through, and what an implementation must be able to do for them.

Events may arrive a little later than the write that caused them was acknowledged, but never after the answer to a later
read of the same session: `Recorder.settled` reads once and returns what has come.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from barnabas.metadata.store import EventType, MetadataStore, SessionState, WatchEvent

PATIENCE_SECONDS = 120.0


class CannotHappen(Exception):  # noqa: N818
    """Raised by an ensemble for what its sessions never meet; the test is skipped."""


class Ensemble(Protocol):
    """Something that sessions can be opened on; they all see the same tree."""

    async def session(self) -> MetadataStore: ...

    async def suspend(self, store: MetadataStore) -> None:
        """Cuts a session off, perhaps others with it. Returns when it is suspended."""
        ...

    async def resume(self, store: MetadataStore) -> None:
        """Returns when the session is connected again."""
        ...

    async def expire(self, store: MetadataStore) -> None:
        """Ends a session without asking it. Returns when it is lost."""
        ...

    async def lose_answers(self, store: MetadataStore) -> None:
        """From now on until it is suspended, a session is heard, but gets no answers."""
        ...


async def reached(store: MetadataStore, state: SessionState) -> None:
    """Waits until the session is in this state."""
    is_there = asyncio.Event()

    def look(_state: SessionState) -> None:
        if store.state is state:
            is_there.set()

    store.add_session_listener(look)
    try:
        look(store.state)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await is_there.wait()
    finally:
        store.remove_session_listener(look)


class Recorder:
    """A watch that keeps its events."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._events: list[WatchEvent] = []

    def __call__(self, event: WatchEvent) -> None:
        self._events.append(event)

    async def settled(self) -> list[tuple[EventType, str]]:
        await self._store.exists("/")
        events, self._events = self._events, []
        return [(event.type, event.path) for event in events]


class Contract:
    @asynccontextmanager
    async def ensemble(self, directory: Path) -> AsyncIterator[Ensemble]:
        """A new one, with an empty tree."""
        raise NotImplementedError
        yield

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        """On an event loop of its own."""
        asyncio.run(story)


Scenario = Callable[[Contract, Ensemble], Awaitable[None]]


def scenario(test: Scenario) -> Callable[[Contract, Path], None]:
    """Runs an async test method with an ensemble of its own."""

    def test_method(self: Contract, tmp_path: Path) -> None:
        async def main() -> None:
            async with self.ensemble(tmp_path) as ensemble:
                await test(self, ensemble)

        try:
            self.run(main())
        except CannotHappen as reason:
            pytest.skip(str(reason))

    test_method.__name__ = test.__name__  # type: ignore[attr-defined]
    return test_method
