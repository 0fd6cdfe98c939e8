"""Writes who leads, as soon as the image says that it is due: the acting half of `barnabas.controller.leaders`.

Partitions of thousands are written in few `multi`, each conditional on the states that it replaces. When one of them is
refused, its states are written one by one: what has changed meanwhile is left to the image that tells of it. A state
that was written is not decided on again before the image has it.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.controller.controllership import Controllership
from barnabas.controller.leaders import StateChange, due_state
from barnabas.metadata.errors import BadVersion, NoNode
from barnabas.metadata.image import ClusterImage, Topic
from barnabas.metadata.store import SetData
from barnabas.metadata.znodes import NO_LEADER, PartitionState

logger = logging.getLogger(__name__)

_TOGETHER_MAX: Final = 500
"""Partitions. As many states fit into one `multi` of ZooKeeper, and take the event loop some milliseconds."""


class Elections:
    """Owner: the event loop of the broker that is the controller."""

    def __init__(self, controllership: Controllership) -> None:
        self._controllership = controllership
        self._written: dict[TopicPartition, int] = {}
        """The version that each state will have in an image to come."""

    async def hold(
        self, image: ClusterImage, topics: Iterable[Topic], brokers: Collection[int] | None = None
    ) -> Sequence[StateChange]:
        """Writes what is due in these topics, of all partitions or of those with a replica on one of the brokers.

        Returns what was written. NOT_CONTROLLER when another broker is the controller now.
        """
        written: list[StateChange] = []
        due: list[StateChange] = []
        partitions = ((topic, one) for topic in topics for one in topic.partitions)
        for looked_at, (topic, one) in enumerate(partitions, 1):
            change = due_state(topic, one, image.brokers, self._controllership.epoch, brokers)
            if change is not None and self._is_new(change):
                due.append(change)
            if len(due) == _TOGETHER_MAX:
                written += await self._write(due)
                due = []
            if looked_at % _TOGETHER_MAX == 0:
                await asyncio.sleep(0)
        if due:
            written += await self._write(due)
            await asyncio.sleep(0)
        for change in written:
            self._written[change.partition] = change.version + 1
        offline = [change.partition for change in written if change.state.leader == NO_LEADER]
        if offline:
            logger.warning("partitions without a leader: %d, the first is %s", len(offline), offline[0])
        return written

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Of topics that are gone."""
        for partition in partitions:
            self._written.pop(partition, None)

    def _is_new(self, change: StateChange) -> bool:
        expected = self._written.get(change.partition)
        if expected is not None and change.version >= expected:
            del self._written[change.partition]
            return True
        return expected is None

    async def _write(self, changes: Sequence[StateChange]) -> Sequence[StateChange]:
        try:
            await self._controllership.multi([_operation(change) for change in changes])
        except (BadVersion, NoNode):
            if len(changes) == 1:
                return ()
            return [one for change in changes for one in await self._write([change])]
        return changes


def _operation(change: StateChange) -> SetData:
    return SetData(PartitionState.path_of(*change.partition), change.state.encode(), change.version)
