"""Ends the session of a process that is dead: its ephemeral nodes go at once, not when the session times out.

Only who *knows* that the process is dead should do it; a live one finds its session expired.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from barnabas.metadata.errors import StoreUnreachable
from barnabas.metadata.store import SessionState, WatchEvent
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey, ZooKeeperOptions

if TYPE_CHECKING:
    from barnabas.metadata.zookeeper.kazoo_session import SessionClient

_ABANDON_SECONDS_MAX: Final = 1.0


async def end_session(options: ZooKeeperOptions, key: SessionKey) -> bool:
    """Whether the session was still there, as far as this key can tell. `StoreUnreachable` when no server answers."""
    from barnabas.metadata.zookeeper.kazoo_session import Ending, SessionClient

    closing = _Closing()
    while True:
        client = SessionClient(options, closing, key)
        await closing.run(client, options.connection_timeout_ms / 1000)
        if client.ending is not Ending.BROKEN:
            return closing.was_there


class _Closing:
    """Attaches to the session and closes it. Whose connection breaks in between does not know, and tries again."""

    def __init__(self) -> None:
        self.was_there = False

    async def run(self, client: "SessionClient", seconds_max: float) -> None:
        self._client = client
        self._ended = asyncio.Event()
        client.start()
        try:
            async with asyncio.timeout(seconds_max):
                await self._ended.wait()
        except TimeoutError as error:
            raise StoreUnreachable(f"cannot reach ZooKeeper: {client.problem}") from error
        finally:
            client.abandon()
            with suppress(TimeoutError):
                async with asyncio.timeout(_ABANDON_SECONDS_MAX):
                    await self._ended.wait()

    def on_state(self, state: SessionState, key: SessionKey | None = None) -> None:
        if state is SessionState.CONNECTED:
            self.was_there = True
            self._client.end()

    def on_event(self, event: WatchEvent) -> None: ...

    def on_end(self) -> None:
        self._ended.set()
