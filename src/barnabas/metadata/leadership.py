"""Raises leader epochs at every start of a broker, even one alone, to tell its new records from those of before.

A broker may have lost the end of a log (a power failure, a disk that lied), and writes other records at the offsets of
lost ones. Consumers and followers find out by the epoch, so no two lives of a broker share one. The new epochs are in
the store before the broker serves a partition.

Thousands of partitions are raised in few writes, each conditional on the states that it replaces. A crash in between
leaves some raised: the next start raises all of them once more.
"""

from typing import Final

from barnabas.metadata.controllership import Controllership
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.store import Operation, SetData
from barnabas.metadata.znodes import PartitionState

_TOGETHER_MAX: Final = 1000
"""Fits into one `multi` of ZooKeeper, and takes the event loop some milliseconds."""


async def raise_leader_epochs(controllership: Controllership, image: ClusterImage, broker_id: int) -> None:
    """Gives every partition that the broker led its next epoch. The caller must read the image again."""
    operations: list[Operation] = []
    alike: dict[PartitionState, bytes] = {}  # thousands of partitions have few different states
    for topic in image.topics.values():
        for one in topic.partitions:
            if one.leader != broker_id:
                continue
            state = one.led_by(one.leader, controllership.epoch, one.isr_epochs)
            data = alike.get(state)
            if data is None:
                data = alike[state] = state.encode()
            operations.append(SetData(PartitionState.path_of(topic.name, one.index), data, one.partition_epoch))
            if len(operations) == _TOGETHER_MAX:
                await controllership.multi(operations)
                operations = []
    if operations:
        await controllership.multi(operations)
