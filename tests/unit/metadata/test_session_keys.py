"""The key that a registration leaves for the other brokers: written with it, gone with it, of no other session."""

import asyncio

import pytest

from barnabas.base.clock import ManualClock
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.errors import CorruptNode
from barnabas.metadata.identity import BrokerIdTaken, register_broker
from barnabas.metadata.session_keys import (
    KeyMissing,
    decode_session_key,
    encode_session_key,
    key_of_registration,
    session_key_path,
)
from barnabas.metadata.store import MetadataStore, Node, ensure_paths
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.znodes import BROKER_IDS, BrokerRegistration
from barnabas.metadata.zookeeper.zookeeper_options import SESSION_KEYS, SessionKey

KEY = SessionKey(-7, bytes(range(16)))
PATHS = [f"{BROKER_IDS}/1", session_key_path(1)]


def test_key_is_read_as_it_was_written() -> None:
    assert decode_session_key(session_key_path(1), encode_session_key(KEY)) == KEY


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version": 1, "session_id": "7", "password": "xyz"}'])
def test_damaged_key_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptNode):
        decode_session_key(session_key_path(1), data)


def test_key_comes_and_goes_with_the_registration() -> None:
    async def main() -> None:
        metadata = EmbeddedMetadata.in_memory(ManualClock(), MemoryTable())
        session, witness = metadata.session(), metadata.session()
        await ensure_paths(witness, [BROKER_IDS])
        key = SessionKey(session.session_id, b"secret")
        epoch = await register_broker(session, BrokerRegistration(1, ()), key)
        registration, left = await witness.get_many(PATHS)
        assert key_of_registration(1, epoch, registration, left) == key
        assert key_of_registration(1, epoch + 1, registration, left) is None
        with pytest.raises(BrokerIdTaken):
            await register_broker(witness, BrokerRegistration(1, ()), SessionKey(witness.session_id, b"other"))

        await session.close()
        assert await witness.get_many(PATHS) == [None, None]
        assert key_of_registration(1, epoch, None, None) is None
        await metadata.close()

    asyncio.run(main())


def test_without_a_key_nothing_is_left() -> None:
    async def main() -> None:
        metadata = EmbeddedMetadata.in_memory(ManualClock(), MemoryTable())
        session: MetadataStore = metadata.session()
        await ensure_paths(session, [BROKER_IDS])
        epoch = await register_broker(session, BrokerRegistration(1, ()))
        assert await session.exists(SESSION_KEYS) is None
        [registration] = await session.get_many([f"{BROKER_IDS}/1"])
        with pytest.raises(KeyMissing, match="has not left"):
            key_of_registration(1, epoch, registration, None)
        await metadata.close()

    asyncio.run(main())


@pytest.mark.parametrize("what", ["another session", "another write"])
def test_key_of_another_life_is_none(what: str) -> None:
    async def main() -> None:
        metadata = EmbeddedMetadata.in_memory(ManualClock(), MemoryTable())
        session = metadata.session()
        await ensure_paths(session, [BROKER_IDS])
        epoch = await register_broker(session, BrokerRegistration(1, ()), SessionKey(session.session_id, b"secret"))
        registration, left = await session.get_many(PATHS)
        assert left is not None
        if what == "another session":
            left = Node(encode_session_key(KEY), left.stat)
        else:
            left = Node(left.data, left.stat._replace(czxid=epoch + 1))
        with pytest.raises(KeyMissing, match="another session"):
            key_of_registration(1, epoch, registration, left)
        await metadata.close()

    asyncio.run(main())
