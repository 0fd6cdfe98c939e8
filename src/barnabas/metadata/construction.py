"""Filling a store that brokers must not use yet: rebuilt from logs, or copied from the file of a broker that was alone.

```
/barnabas/construction            {"version": 1, "cluster_id": ID}, as long as it is not finished
/barnabas/construction/builder    ephemeral: who is at work
```

A broker does not start where `/cluster/id` is missing or another one. So that node goes first, if it is there, and
comes back last, with the write that ends the construction. What a crash leaves is taken up by the next one, of the same
cluster: every write of nodes is one that may be repeated.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.wording import first_few
from barnabas.metadata.errors import BadVersion, NodeExists, NoNode
from barnabas.metadata.identity import ensure_layout
from barnabas.metadata.json_node import decode_json, encode_json
from barnabas.metadata.limits import in_batches
from barnabas.metadata.store import Create, Delete, MetadataStore, Operation, SetData
from barnabas.metadata.znodes import BROKER_IDS, CLUSTER_ID, ClusterId

CONSTRUCTION: Final = "/barnabas/construction"
_BUILDER: Final = f"{CONSTRUCTION}/builder"
_TOGETHER_MAX: Final = 500
_CHANGED: Final = "the metadata store was changed by others meanwhile; see that no broker runs, and try again"


class StoreInUse(BarnabasError):  # noqa: N818 - a fact about a store, named as one
    """Others use the store, or fill it; the message says what to do."""


class ConstructionNode:
    """`/barnabas/construction`: the id of the cluster that the store will be that of."""

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        return encode_json({"version": 1, "cluster_id": cluster_id})

    @staticmethod
    def decode(data: bytes) -> str:
        return decode_json(CONSTRUCTION, data).text("cluster_id")


async def stored_cluster_id(store: MetadataStore) -> str | None:
    """Of the cluster that the store is that of, or will be."""
    await store.sync()
    done, begun = await store.get_many([CLUSTER_ID, CONSTRUCTION])
    if done is not None:
        return ClusterId.decode(done.data)
    return None if begun is None else ConstructionNode.decode(begun.data)


async def require_idle(store: MetadataStore) -> None:
    """`StoreInUse` while brokers are registered."""
    try:
        names = await store.children(BROKER_IDS)
    except NoNode:
        return
    if names:
        raise StoreInUse(
            f"broker {first_few(names)} is registered in the metadata store: stop all brokers first; one that was "
            "killed is registered until its session ends (see 'barnabas broker retire')"
        )


class Construction:
    """`begin`, `write`, `finish`. If it is interrupted, the next run continues it."""

    def __init__(self, store: MetadataStore, cluster_id: str) -> None:
        self._store = store
        self._cluster_id = cluster_id

    async def begin(self) -> None:
        """From here on no broker starts. The id of another cluster is replaced: the caller has looked at it."""
        await require_idle(self._store)
        await ensure_layout(self._store)
        done, begun = await self._store.get_many([CLUSTER_ID, CONSTRUCTION])
        if begun is not None and (other := ConstructionNode.decode(begun.data)) != self._cluster_id:
            raise StoreInUse(f"the metadata store is being filled for cluster {other}: finish that first")
        operations: list[Operation] = []
        if begun is None:
            operations.append(Create(CONSTRUCTION, ConstructionNode.encode(self._cluster_id)))
        operations.append(Create(_BUILDER, ephemeral=True))
        if done is not None:
            operations.append(Delete(CLUSTER_ID, done.stat.version))
        try:
            await self._store.multi(operations)
        except NodeExists:
            raise StoreInUse(
                "another command fills the metadata store now; if it was killed, wait until its session has timed out"
            ) from None
        except (BadVersion, NoNode):
            raise StoreInUse(_CHANGED) from None

    async def write(self, operations: Iterable[Operation]) -> None:
        """In batches, in their order. Nodes to create that are there already get the data."""
        for batch in in_batches(operations, _TOGETHER_MAX):
            try:
                try:
                    await self._store.multi(batch)
                except NodeExists:  # what an earlier attempt has left
                    await self._store.multi(await self._still_due(batch))
            except (BadVersion, NodeExists, NoNode):
                raise StoreInUse(_CHANGED) from None

    async def _still_due(self, batch: Sequence[Operation]) -> list[Operation]:
        creates = [one.path for one in batch if isinstance(one, Create)]
        present = dict(zip(creates, await self._store.get_many(creates), strict=True))
        due: list[Operation] = []
        for one in batch:
            node = present.get(one.path) if isinstance(one, Create) else None
            if node is None:
                due.append(one)
            elif isinstance(one, Create) and node.data != one.data:
                due.append(SetData(one.path, one.data, node.stat.version))
        return due

    async def finish(self) -> None:
        """The store is that of the cluster."""
        await self._store.multi(
            [Create(CLUSTER_ID, ClusterId.encode(self._cluster_id)), Delete(_BUILDER), Delete(CONSTRUCTION)]
        )
