"""Being the controller: the ephemeral `/controller`, and writes that count only while one still is.

Each claim raises `/controller_epoch` by one. A write of the controller carries a check of that node's version, so it is
refused as soon as another broker has claimed, whatever the old controller believes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.metadata.errors import BadVersion, NodeExists, NoNode
from barnabas.metadata.store import Check, Create, MetadataStore, Operation, Result, SetData, Stat
from barnabas.metadata.znodes import CONTROLLER, CONTROLLER_EPOCH, ControllerEpoch, ControllerNode
from barnabas.wire.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class Controllership:
    """Proof that this session was elected, good until somebody else is."""

    store: MetadataStore
    broker_id: int
    epoch: int
    epoch_version: int

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Like the store's `multi`. NOT_CONTROLLER when another broker is the controller now."""
        try:
            results = await self.store.multi([Check(CONTROLLER_EPOCH, self.epoch_version), *operations])
        except (BadVersion, NoNode) as error:
            if error.path == CONTROLLER_EPOCH:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "another broker is the controller now") from error
            raise
        return results[1:]


async def claim_controller(store: MetadataStore, broker_id: int, now_ms: int) -> Controllership | None:
    """Becomes the controller; None when there is one already."""
    while await store.exists(CONTROLLER) is None:
        [node] = await store.get_many([CONTROLLER_EPOCH])
        epoch = 1 if node is None else ControllerEpoch.decode(node.data) + 1
        data = ControllerEpoch.encode(epoch)
        claim = ControllerNode(broker_id, now_ms).encode()
        raise_epoch: Operation = (
            Create(CONTROLLER_EPOCH, data) if node is None else SetData(CONTROLLER_EPOCH, data, node.stat.version)
        )
        try:
            results = await store.multi([raise_epoch, Create(CONTROLLER, claim, ephemeral=True)])
        except (BadVersion, NodeExists):  # somebody else was faster
            continue
        version = results[0].version if isinstance(results[0], Stat) else 0
        return Controllership(store, broker_id, epoch, version)
    return None
