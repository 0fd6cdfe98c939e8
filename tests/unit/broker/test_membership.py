"""What a broker that leaves its cluster does with the key of its session."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from barnabas.base.clock import ManualClock
from barnabas.broker.membership import Membership
from barnabas.broker.metadata_source import EmbeddedSource
from barnabas.broker.session_file import SessionKeeper
from barnabas.controller.seat import ControllerSeat
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.embedded_session import EmbeddedSession
from barnabas.metadata.session_keys import decode_session_key, session_key_path
from barnabas.metadata.store import SessionState
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.znodes import BARNABAS, BARNABAS_VERSIONS, BrokerRegistration
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey
from barnabas.sim.disk import SimulatedDisk
from tests.support.inline_executor import InlineExecutor

OURS, EARLIER = SessionKey(7, b"ours"), SessionKey(6, b"earlier")
REGISTRATION = BrokerRegistration(1, (), features={BARNABAS: BARNABAS_VERSIONS})


class KeyedSource(EmbeddedSource):
    """Sessions that have keys, as those of ZooKeeper have."""

    def __init__(self) -> None:
        super().__init__(EmbeddedMetadata.in_memory(ManualClock(), MemoryTable()), is_shared=True)

    def session_key(self) -> SessionKey | None:
        return OURS


@pytest.mark.parametrize(
    ("is_registered", "is_cut", "left"),
    [(True, False, None), (True, True, OURS), (False, False, EARLIER)],
    ids=["its session is ended", "its session lives on", "it never registered"],
)
def test_key_is_removed_with_the_session_that_it_ends(
    is_registered: bool, is_cut: bool, left: SessionKey | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        source, keeper = KeyedSource(), SessionKeeper(SimulatedDisk(Random(1)), "/", InlineExecutor())
        await keeper.write(EARLIER)
        seat = cast(ControllerSeat, SimpleNamespace(broker_id=1))
        membership = Membership(source, seat, Random(1), keeper)
        await membership.join(None)
        if is_registered:
            await membership.register(REGISTRATION)
        if is_cut:
            monkeypatch.setattr(EmbeddedSession, "state", SessionState.SUSPENDED)
        await membership.leave()
        assert await keeper.read() == left

    asyncio.run(main())


@pytest.mark.parametrize("leaves_key", [True, False])
def test_key_is_left_for_brokers_and_taken_back_before_a_stop(leaves_key: bool) -> None:
    async def main() -> None:
        source, keeper = KeyedSource(), SessionKeeper(SimulatedDisk(Random(1)), "/", InlineExecutor())
        seat = cast(ControllerSeat, SimpleNamespace(broker_id=1))
        membership = Membership(source, seat, Random(1), keeper, leaves_key=leaves_key)
        await membership.join(None)
        await membership.register(REGISTRATION)
        paths = [REGISTRATION.path, session_key_path(1)]
        registration, left = await membership.store.get_many(paths)
        assert registration is not None
        assert (None if left is None else decode_session_key(paths[1], left.data)) == (OURS if leaves_key else None)

        await membership.take_key_back()
        assert await membership.store.get_many(paths) == [registration, None]
        await membership.take_key_back()
        await membership.leave()

    asyncio.run(main())
