"""Adds replicas to partitions: the part of a reassignment (KIP-455) that takes no replica away.

```
asked ──▶ assignment: replicas [1, 2, 3], adding [2, 3] ──▶ both fetch, and join the ISR ──▶ adding is empty
```

The new replicas belong to the partition from the first write on: brokers create their logs and fetch, and the leader
proposes those that have caught up, as it does any follower. `adding` in the topic's node, which is Kafka's, only says
that the addition is not complete. It is emptied by the controller when all of them are in sync together.

**Nobody is refused meanwhile.** A partition with one replica takes acks=all with one in sync, whatever
`min.insync.replicas` says. If its second replica counted at once, a minimum of 2 would refuse producers until that one
has fetched everything. So `in_sync.due_minimum` counts a replica that is being added when it is in sync, and the
controller raises the minimum of the state then; a raise is always safe. A state from before may have a minimum above
the number of its replicas: it is corrected in the same write that adds the first one. An image never shows the new
replicas without that, because a topic's node is read before its states.

A crash of the controller leaves all or nothing of up to 250 partitions; the next one completes what it finds.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from barnabas.base.pausing import in_slices
from barnabas.controller.controllership import Controllership
from barnabas.controller.in_sync import Registered, with_minimum
from barnabas.controller.placement import Replicas
from barnabas.controller.replication_rules import RulesOf, default_rules
from barnabas.controller.topics import read_assignment, too_busy
from barnabas.metadata.errors import BadVersion, NoNode
from barnabas.metadata.image import ClusterImage, Partition, Topic
from barnabas.metadata.store import Operation, SetData
from barnabas.metadata.znodes import PartitionState, ReplicaAssignment, TopicAssignment
from barnabas.wire.errors import ErrorCode, KafkaError

_PARTITIONS_TOGETHER_MAX: Final = 250
_ATTEMPTS_MAX: Final = 16

Asked = Mapping[int, Sequence[int] | None]
"""By partition number: all replicas that it should have, the preferred leader first; None cancels what is under way."""
Refusals = dict[int, KafkaError]


def with_added(
    before: ReplicaAssignment, asked: Sequence[int] | None, registered: Registered, *, may_grow: bool = True
) -> ReplicaAssignment:
    """The assignment to write; the one before when it is that already. Pure. Raises `KafkaError` with the refusal."""
    if asked is None:
        if not before.adding:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no replica of the partition is being added")
        raise _invalid(
            f"the addition of {list(before.adding)} cannot be cancelled: taking replicas away is not built yet"
        )
    if not asked:
        raise _invalid("the partition is assigned to no broker")
    if len(set(asked)) != len(asked):
        raise _invalid(f"the partition is assigned twice to the same broker: {list(asked)}")
    if removed := [one for one in before.replicas if one not in asked]:
        raise _invalid(
            f"the partition would be taken from {removed}: replicas can be added, but moving them is not built yet"
        )
    added = [one for one in asked if one not in before.replicas]
    if unknown := [one for one in added if one not in registered]:
        raise _invalid(f"the partition is assigned to broker {unknown[0]}, which is not registered")
    if added and not may_grow:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor would change from {len(before.replicas)} to {len(asked)}",
        )
    adding = tuple([one for one in asked if one in added or one in before.adding])
    return replace(before, replicas=tuple(asked), adding=adding)


def complete_additions(topic: Topic) -> Iterator[int]:
    """The partitions whose new replicas are all in sync, though the topic's node calls them new. Pure."""
    return (one.index for one in topic.partitions if one.adding and set(one.adding) <= set(one.isr))


class ReplicaAdditions:
    """Owner: the event loop of the broker that is the controller."""

    def __init__(
        self,
        controllership: Controllership,
        current_image: Callable[[], ClusterImage],
        rules_of: RulesOf = default_rules,
    ) -> None:
        self._controllership = controllership
        self._store = controllership.store
        self._current_image = current_image
        self._rules_of = rules_of

    async def add(self, name: str, asked: Asked, *, may_grow: bool = True) -> tuple[dict[int, Replicas], Refusals]:
        """Gives partitions of a topic the replicas asked for. Returns those that have them now, and why others do not.

        UNKNOWN_TOPIC_OR_PARTITION when there is no such topic.
        """
        done: dict[int, Replicas] = {}
        refusals: Refusals = {}
        async for together in in_slices(asked.items(), _PARTITIONS_TOGETHER_MAX):
            assigned, refused = await self._add(name, dict(together), may_grow)
            done.update(assigned)
            refusals.update(refused)
        return done, refusals

    async def _add(self, name: str, asked: Asked, may_grow: bool) -> tuple[dict[int, Replicas], Refusals]:
        for _ in range(_ATTEMPTS_MAX):
            topic, version = await read_assignment(self._store, name)
            states = await self._states(topic, asked)
            partitions, refusals = list(topic.partitions), Refusals()
            operations: list[Operation] = []
            for index, replicas in asked.items():
                try:
                    if index not in states:
                        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist")
                    before = partitions[index]
                    partitions[index] = with_added(before, replicas, self._current_image().brokers, may_grow=may_grow)
                except KafkaError as error:
                    refusals[index] = error
                    continue
                if partitions[index] != before:
                    operations += self._bounded(name, states[index])
            done = {index: partitions[index].replicas for index in asked if index not in refusals}
            grown = TopicAssignment(name, topic.topic_id, tuple(partitions))
            if grown == topic:
                return done, refusals
            await asyncio.sleep(0)  # reading may have taken as long as one turn of the event loop should
            try:
                await self._controllership.multi([SetData(grown.path, grown.encode(), version), *operations])
            except (BadVersion, NoNode):
                continue
            return done, refusals
        raise too_busy(name)

    async def _states(self, topic: TopicAssignment, asked: Asked) -> dict[int, Partition]:
        """Of those partitions that there are, as they are now."""
        indexes = [index for index in asked if 0 <= index < len(topic.partitions)]
        paths = [PartitionState.path_of(topic.topic, index) for index in indexes]
        nodes = await self._store.get_many(paths)
        return {
            index: Partition.of(
                index, topic.partitions[index], PartitionState.decode(path, node.data), node.stat.version
            )
            for index, path, node in zip(indexes, paths, nodes, strict=True)
            if node is not None
        }

    def _bounded(self, name: str, before: Partition) -> Iterator[Operation]:
        """The state with the minimum that is in force before the first replica is added, where it says another."""
        image = self._current_image()
        rules = self._rules_of(image, image.configs_of_topic(name))
        state = with_minimum(before, rules.min_insync_replicas, self._controllership.epoch)
        if state is not None:
            path = PartitionState.path_of(name, before.index)
            yield SetData(path, state.encode(), before.partition_epoch)

    async def complete(self, topic: Topic) -> None:
        """Writes down that new replicas of the topic have all joined, where they have.

        A write that comes too late is left out: the image that tells of the other one brings the topic here again.
        """
        joined = list(islice(complete_additions(topic), _PARTITIONS_TOGETHER_MAX))
        if not joined:
            return
        try:
            now, version = await read_assignment(self._store, topic.name)
            if now.topic_id != topic.id:
                return
            partitions = list(now.partitions)
            for index in joined:
                if partitions[index].replicas == topic.partitions[index].replicas:
                    partitions[index] = replace(partitions[index], adding=())
            done = TopicAssignment(topic.name, topic.id, tuple(partitions))
            if done != now:
                await self._controllership.multi([SetData(done.path, done.encode(), version)])
        except (BadVersion, NoNode):
            return
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
