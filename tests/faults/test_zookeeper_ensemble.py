"""Sessions on three ZooKeeper servers: what one of them acknowledged, and what is left when the leader dies."""

import asyncio
from pathlib import Path

import pytest

from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram
from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from barnabas.metadata.errors import OutcomeUnknown, SessionSuspended
from barnabas.metadata.store import SessionState
from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions
from barnabas.metadata.zookeeper.zookeeper_store import ZooKeeperStore
from tests.support.store_scenario import PATIENCE_SECONDS, reached
from tests.support.zookeeper import threads_gone

pytestmark = pytest.mark.slow


def test_three_servers(zookeeper_program: ZooKeeperProgram, tmp_path: Path) -> None:
    with ZooKeeperServers(zookeeper_program, tmp_path / "data", 3) as servers:
        asyncio.run(_use(servers))


async def _use(servers: ZooKeeperServers) -> None:
    await _sync_shows_what_another_server_acknowledged(servers)
    await _session_survives_the_leader(servers)
    await threads_gone()


async def _sync_shows_what_another_server_acknowledged(servers: ZooKeeperServers) -> None:
    sessions = [await ZooKeeperStore.open(ZooKeeperOptions(node.address.client_address)) for node in servers.nodes]
    await sessions[0].create("/a")
    for number in range(30):
        writer, reader = sessions[number % 3], sessions[(number + 1) % 3]
        await writer.set("/a", str(number).encode())
        await reader.sync()
        assert (await reader.get("/a")).data == str(number).encode()
    for session in sessions:
        await session.close()


async def _session_survives_the_leader(servers: ZooKeeperServers) -> None:
    store = await ZooKeeperStore.open(ZooKeeperOptions(servers.connect, session_timeout_ms=20_000))
    session_id = store.session_id
    await store.create("/e", ephemeral=True)
    states: list[SessionState] = []
    store.add_session_listener(states.append)
    [leader] = [node for node in servers.nodes if b"Mode: leader" in node.ask(b"srvr")]
    leader.kill()
    written = None
    async with asyncio.timeout(PATIENCE_SECONDS):
        while written is None:
            await reached(store, SessionState.CONNECTED)
            try:
                await store.sync()
                written = await store.set("/a", b"after")
            except (SessionSuspended, OutcomeUnknown):
                await asyncio.sleep(0.05)
    assert set(states) <= {SessionState.SUSPENDED, SessionState.CONNECTED}
    assert store.session_id == session_id
    assert (await store.get("/e")).stat.ephemeral_owner == session_id
    assert (await store.get("/a")).data == b"after"
    await store.close()
