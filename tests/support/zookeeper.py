"""Sessions on a real ZooKeeper (`zookeeper_fixtures`), and what may happen to them.

Each session of a `ZooKeeperEnsemble` goes through a proxy of its own, so that a test can cut it off and leave the
others alone.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from barnabas.metadata.store import MetadataStore, SessionState
from barnabas.metadata.zookeeper.session_end import end_session
from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions
from barnabas.metadata.zookeeper.zookeeper_store import ZooKeeperStore
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.store_scenario import PATIENCE_SECONDS, reached

THREAD_NAMES = ("barnabas-zookeeper", "barnabas-loop-watchdog")


def session_threads() -> list[str]:
    """What sessions have left running in this process."""
    return [thread.name for thread in threading.enumerate() if thread.name in THREAD_NAMES]


async def threads_gone() -> None:
    """Waits for the last instructions of threads that have said goodbye."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while session_threads():  # noqa: ASYNC110 - threads set no event
            await asyncio.sleep(0.005)


class ZooKeeperEnsemble:
    def __init__(self, options: ZooKeeperOptions, stack: AsyncExitStack) -> None:
        self._options = options
        self._stack = stack
        self._proxies: dict[int, CuttableProxy] = {}

    async def session(self, **changes: Any) -> ZooKeeperStore:
        """Opens one, with some options changed."""
        host, _, port = self._options.hosts.partition(":")
        proxy = await self._stack.enter_async_context(CuttableProxy(host, int(port)))
        store = await ZooKeeperStore.open(replace(self._options, hosts=f"127.0.0.1:{proxy.port}", **changes))
        self._stack.push_async_callback(store.close)
        self._proxies[store.session_id] = proxy
        return store

    async def suspend(self, store: MetadataStore) -> None:
        self.proxy(store).cut()
        await reached(store, SessionState.SUSPENDED)

    async def resume(self, store: MetadataStore) -> None:
        self.proxy(store).mend()
        await reached(store, SessionState.CONNECTED)

    async def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, ZooKeeperStore)
        assert await end_session(self._options, store.session_key)
        await reached(store, SessionState.LOST)

    async def lose_answers(self, store: MetadataStore) -> None:
        self.proxy(store).lose_answers()

    def proxy(self, store: MetadataStore) -> CuttableProxy:
        return self._proxies[store.session_id]


@asynccontextmanager
async def zookeeper_ensemble(options: ZooKeeperOptions) -> AsyncIterator[ZooKeeperEnsemble]:
    """Nothing that its sessions made stays behind."""
    async with AsyncExitStack() as stack:
        yield ZooKeeperEnsemble(options, stack)
    await threads_gone()
