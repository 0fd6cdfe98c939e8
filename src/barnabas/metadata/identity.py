"""Who a cluster and its members are: made once, kept in the store, never given twice.

| id | where | how |
|---|---|---|
| cluster id | `/cluster/id` | random, in Kafka's 22 characters; the first broker makes it |
| broker id | `/brokers/ids/N`, ephemeral | configured, or from `/brokers/seqid`, above the reserved ones |
| broker epoch | | the position (`czxid`) of the registration: grows with each |
| producer ids | `/latest_producer_id_block` | in blocks of 1000 |

A block of producer ids is durable as used before the first id of it is given out, so a crash wastes the rest of a block
and repeats none.
"""

import asyncio
import random
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import ProducerId
from barnabas.base.uuid import new_uuid, uuid_text
from barnabas.metadata.errors import BadVersion, NodeExists
from barnabas.metadata.session_keys import encode_session_key, session_key_path
from barnabas.metadata.store import Create, MetadataStore, Operation, SetData, ensure_paths
from barnabas.metadata.znodes import (
    BROKER_IDS,
    BROKER_SEQUENCE,
    CLUSTER_ID,
    PERSISTENT_PATHS,
    PRODUCER_ID_BLOCK,
    PRODUCER_ID_BLOCK_SIZE,
    BrokerRegistration,
    ClusterId,
    ProducerIdBlock,
)
from barnabas.metadata.zookeeper.zookeeper_options import SESSION_KEYS, SessionKey

RESERVED_BROKER_ID_MAX: Final = 1000
"""`reserved.broker.max.id`: configured broker ids go up to it, generated ones start after it."""

_PRODUCER_ID_MAX: Final = 2**63 - 1


class BrokerIdTaken(BarnabasError):  # noqa: N818
    """Another live broker has this id."""


async def ensure_layout(store: MetadataStore) -> None:
    """Makes the nodes that everything else hangs from."""
    await ensure_paths(store, PERSISTENT_PATHS)


async def ensure_cluster_id(store: MetadataStore, source: random.Random) -> str:
    """The cluster's id, made now if it has none."""
    while True:
        [node] = await store.get_many([CLUSTER_ID])
        if node is not None:
            return ClusterId.decode(node.data)
        try:
            await store.create(CLUSTER_ID, ClusterId.encode(uuid_text(new_uuid(source))))
        except NodeExists:  # another broker of the same cluster starts, too
            continue


async def next_broker_id(store: MetadataStore, reserved_max: int = RESERVED_BROKER_ID_MAX) -> int:
    """An id that nobody has had."""
    return (await store.set(BROKER_SEQUENCE, b"")).version + reserved_max


async def require_free_id(store: MetadataStore, broker_id: int, earlier_session_id: int | None) -> None:
    """`BrokerIdTaken` when a broker of this id is registered, unless that is by the session of this one's last life."""
    await store.sync()  # a server that lags behind may still have what a clean stop has just ended
    stat = await store.exists(f"{BROKER_IDS}/{broker_id}")
    if stat is not None and stat.ephemeral_owner != earlier_session_id:
        raise _taken(broker_id)


async def register_broker(store: MetadataStore, registration: BrokerRegistration, key: SessionKey | None = None) -> int:
    """Says that the broker is alive, as long as the session is. The broker's epoch.

    `key` is that of the session, for other brokers; None where they must not have it.
    """
    writes = [Create(registration.path, registration.encode(), ephemeral=True)]
    if key is not None:
        await ensure_paths(store, [SESSION_KEYS])
        writes.append(Create(session_key_path(registration.broker_id), encode_session_key(key), ephemeral=True))
    try:
        await store.multi(writes)
    except NodeExists:
        raise _taken(registration.broker_id) from None
    return (await store.get(registration.path)).stat.czxid


def _taken(broker_id: int) -> BrokerIdTaken:
    return BrokerIdTaken(f"broker id {broker_id} is in use by another broker; give each broker its own node.id")


class ProducerIds:
    """Gives out producer ids, each once in the life of the cluster."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._end = 0
        self._claiming = asyncio.Lock()

    async def take(self) -> ProducerId:
        if self._next == self._end:
            async with self._claiming:
                if self._next == self._end:  # nobody claimed while we waited
                    block = await self._claim()
                    self._next, self._end = block.first, block.last + 1
        self._next += 1
        return self._next - 1

    async def _claim(self) -> ProducerIdBlock:
        while True:
            [node] = await self._store.get_many([PRODUCER_ID_BLOCK])
            # The node is made without data, before there is a first block.
            first = ProducerIdBlock.decode(node.data).last + 1 if node is not None and node.data else 0
            block = ProducerIdBlock(self._broker_id, first, first + PRODUCER_ID_BLOCK_SIZE - 1)
            if block.last > _PRODUCER_ID_MAX:
                raise BarnabasError("all producer ids are used up")
            write: Operation = (
                Create(PRODUCER_ID_BLOCK, block.encode())
                if node is None
                else SetData(PRODUCER_ID_BLOCK, block.encode(), node.stat.version)
            )
            try:
                await self._store.multi([write])
            except (BadVersion, NodeExists):  # another broker took this one
                continue
            return block
