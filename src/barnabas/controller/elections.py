"""Writes partition states: those that are due by the image, and those that leaders and operators ask for.

Partitions of thousands are written in few `multi`, each conditional on the states that it replaces. When one of them is
refused, its states are written one by one: what has changed meanwhile is left to the image that tells of it.

A state that was written is what is decided on next, before the image has it. One whose outcome is unknown, because the
session was lost, is left to the image.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

from barnabas.base.ids import TopicPartition
from barnabas.base.pausing import in_slices
from barnabas.controller.alterations import AlteredPartition, AskedIsr
from barnabas.controller.controllership import Controllership
from barnabas.controller.in_sync import (
    Alteration,
    Registered,
    altered,
    elected,
    led_by_longest,
    with_offline_replica,
    without_broker,
)
from barnabas.controller.leaders import StateChange, due_state
from barnabas.controller.log_ends import Ends, ends_text
from barnabas.controller.replication_rules import RulesOf, default_rules
from barnabas.metadata.errors import BadVersion, NoNode
from barnabas.metadata.image import ClusterImage, Partition, Topic
from barnabas.metadata.store import SetData
from barnabas.metadata.znodes import NO_LEADER, PartitionState
from barnabas.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

_TOGETHER_MAX: Final = 500
"""Partitions. As many states fit into one `multi` of ZooKeeper, and take the event loop some milliseconds."""

Choice: TypeAlias = Callable[[Partition, Registered, int], PartitionState | ErrorCode]
"""Decides on a partition, by what is registered, in a controller's epoch: the state to write, or why there is none."""


class Elections:
    """Owner: the event loop of the broker that is the controller."""

    def __init__(self, controllership: Controllership, rules_of: RulesOf = default_rules) -> None:
        self._controllership = controllership
        self._rules_of = rules_of
        self._written: dict[tuple[UUID, int], Partition] = {}
        """By topic id and number: partitions as an image to come will have them."""
        self._offline: dict[TopicPartition, None] = {}
        """Partitions that nobody led when they were last looked at."""
        self._stopping: dict[int, int] = {}
        """Brokers that are about to stop, with the epochs of their registrations: they lead and join nothing more."""

    # -- what is due by the image ----------------------------------------------------------------------------------

    async def hold(
        self, image: ClusterImage, topics: Iterable[Topic], brokers: Collection[int] | None = None
    ) -> Sequence[StateChange]:
        """Writes what is due in these topics, of all partitions or of those with a replica on one of the brokers.

        Returns what was written. NOT_CONTROLLER when another broker is the controller now.
        """
        written: list[StateChange] = []
        due: list[StateChange] = []
        for looked_at, change in enumerate(self._looked_at(image, topics, brokers), 1):
            if change is not None:
                due.append(change)
            if len(due) == _TOGETHER_MAX:
                written += await self._write(due)
                due = []
            if looked_at % _TOGETHER_MAX == 0:
                await asyncio.sleep(0)
        if due:
            written += await self._write(due)
            await asyncio.sleep(0)
        _log_elections(written)
        return written

    def _looked_at(
        self, image: ClusterImage, topics: Iterable[Topic], brokers: Collection[int] | None
    ) -> Iterator[StateChange | None]:
        """What is due of each partition; None for one that is right as it is, or not in question."""
        epoch = self._controllership.epoch
        for topic in topics:
            rules = self._rules_of(image, image.configs_of_topic(topic.name))
            for one in topic.partitions:
                is_asked_for = brokers is None or any(broker in brokers for broker in one.replicas)
                if not is_asked_for:
                    yield None
                    continue
                newest = self._newest(topic, one)
                change = due_state(topic, newest, image.brokers, rules, epoch)
                self._note_leader(TopicPartition(topic.name, one.index), change.state if change else newest)
                yield change

    def _note_leader(self, name: TopicPartition, one: Partition | PartitionState) -> None:
        if one.leader == NO_LEADER:
            self._offline[name] = None
        else:
            self._offline.pop(name, None)

    # -- what operators ask for ------------------------------------------------------------------------------------

    async def elect(
        self, image: ClusterImage, partitions: Iterable[TopicPartition], choose: Choice
    ) -> list[tuple[TopicPartition, AlteredPartition]]:
        """Has somebody lead each of these partitions by this choice; with what became of it."""
        return await self._elect(image, partitions, lambda _: choose)

    async def _elect(
        self, image: ClusterImage, partitions: Iterable[TopicPartition], choice_of: Callable[[TopicPartition], Choice]
    ) -> list[tuple[TopicPartition, AlteredPartition]]:
        answers: list[tuple[TopicPartition, AlteredPartition]] = []
        async for together in in_slices(partitions, _TOGETHER_MAX):
            decided = [self._choice(image, one, choice_of(one)) for one in together]
            answers += zip(together, await self._write_decided(decided), strict=True)
        return answers

    def _choice(self, image: ClusterImage, partition: TopicPartition, choose: Choice) -> StateChange | ErrorCode:
        topic = image.topics.get(partition.topic)
        one = None if topic is None else topic.partition(partition.partition)
        if topic is None or one is None or one.partition_epoch < 0:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        newest = self._newest(topic, one)
        state = choose(newest, self._staying(image), self._controllership.epoch)
        return state if isinstance(state, ErrorCode) else StateChange(topic.name, topic.id, newest, state)

    # -- partitions that nobody could lead -----------------------------------------------------------------------------

    def unled(self, image: ClusterImage) -> dict[TopicPartition, Topic]:
        """Partitions whose replicas are all registered, but none is in sync or eligible: their logs must be asked."""
        found: dict[TopicPartition, Topic] = {}
        for name in tuple(self._offline):
            topic = image.topics.get(name.topic)
            one = None if topic is None else topic.partition(name.partition)
            if topic is None or one is None:
                del self._offline[name]
                continue
            newest = self._newest(topic, one)
            if newest.leader != NO_LEADER:
                del self._offline[name]
            elif all(replica in image.brokers for replica in one.replicas) and elected(newest, image.brokers).must_ask:
                found[name] = topic
        return found

    async def elect_longest(self, image: ClusterImage, ends: Ends) -> None:
        """Has the longest log of each of these partitions lead, where all replicas have told."""
        answers = await self._elect(image, ends, lambda name: partial(led_by_longest, ends=ends[name]))
        for name, answer in answers:
            if answer.partition is not None:
                logger.error(
                    "no replica of %s is known to have all acknowledged records: broker %d, whose log is the longest, "
                    "leads it (%s)",
                    name,
                    answer.partition.leader,
                    ends_text(ends[name]),
                )

    # -- brokers that stop ---------------------------------------------------------------------------------------------

    async def move_off(self, image: ClusterImage, broker_id: int) -> Sequence[StateChange]:
        """Has others lead what a broker leads, where they can, and takes it out of ISRs. Returns what was written."""
        self._stopping[broker_id] = image.brokers[broker_id].epoch
        written: list[StateChange] = []
        partitions = ((topic, one) for topic in image.topics.values() for one in topic.partitions)
        async for together in in_slices(partitions, _TOGETHER_MAX):
            changes = [self._without_broker(image, topic, one, broker_id) for topic, one in together]
            due = [change for change in changes if change is not None]
            if due:
                written += await self._write(due)
        return written

    def _without_broker(self, image: ClusterImage, topic: Topic, one: Partition, broker_id: int) -> StateChange | None:
        newest = self._newest(topic, one)
        leaders, epoch = self._staying(image), self._controllership.epoch
        state = without_broker(newest, broker_id, image.brokers, leaders, epoch)
        return None if state is None else StateChange(topic.name, topic.id, newest, state)

    # -- log directories that fail -----------------------------------------------------------------------------------

    async def take_offline(
        self, image: ClusterImage, broker_id: int, replicas: Iterable[tuple[UUID, int]]
    ) -> Sequence[StateChange]:
        """Has others lead, and be in sync, where these replicas of a broker are offline: by topic id and number.

        Returns what was written.
        """
        written: list[StateChange] = []
        async for together in in_slices(replicas, _TOGETHER_MAX):
            changes = [self._with_offline(image, broker_id, topic_id, index) for topic_id, index in together]
            due = [change for change in changes if change is not None]
            if due:
                written += await self._write(due)
        for change in written:
            self._note_leader(change.partition, change.state)
        _log_elections(written)
        return written

    def _with_offline(self, image: ClusterImage, broker_id: int, topic_id: UUID, index: int) -> StateChange | None:
        topic = image.topic_by_id(topic_id)
        one = None if topic is None else topic.partition(index)
        if topic is None or one is None or one.partition_epoch < 0:
            return None
        newest = self._newest(topic, one)
        rules = self._rules_of(image, image.configs_of_topic(topic.name))
        state = with_offline_replica(
            newest,
            broker_id,
            image.brokers,
            self._controllership.epoch,
            is_unclean_allowed=rules.is_unclean_allowed,
        )
        return None if state is None else StateChange(topic.name, topic.id, newest, state)

    def _staying(self, image: ClusterImage, besides: int | None = None) -> Registered:
        """Those that are not about to stop, and one that may be."""
        if not self._stopping:
            return image.brokers
        return {
            one: broker
            for one, broker in image.brokers.items()
            if one == besides or self._stopping.get(one) != broker.epoch
        }

    # -- what leaders ask for --------------------------------------------------------------------------------------

    async def alter(
        self, image: ClusterImage, broker_id: int, broker_epoch: int, asked: Sequence[AskedIsr]
    ) -> list[AlteredPartition]:
        """In the order of what is asked. SessionLost when it is not known what was written."""
        decided = [self._alteration(image, broker_id, broker_epoch, one) for one in asked]
        return await self._write_decided(decided)

    def _alteration(
        self, image: ClusterImage, broker_id: int, broker_epoch: int, asked: AskedIsr
    ) -> StateChange | ErrorCode:
        topic = image.topic_by_id(asked.topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        one = topic.partition(asked.index)
        if one is None or one.partition_epoch < 0:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        newest = self._newest(topic, one)
        alteration = Alteration(broker_id, broker_epoch, asked.leader_epoch, asked.partition_epoch, asked.isr)
        state = altered(newest, alteration, self._staying(image, besides=broker_id), self._controllership.epoch)
        return state if isinstance(state, ErrorCode) else StateChange(topic.name, topic.id, newest, state)

    # -- writing ---------------------------------------------------------------------------------------------------

    def follow(self, before: ClusterImage, image: ClusterImage) -> None:
        """What is gone need not be remembered."""
        for broker_id in [one for one in self._stopping if one not in image.brokers]:
            del self._stopping[broker_id]
        for topic in image.topics_gone_since(before):
            for one in topic.partitions:
                self._written.pop((topic.id, one.index), None)

    def _newest(self, topic: Topic, one: Partition) -> Partition:
        """As it was written last, if the image does not have that yet."""
        written = self._written.get((topic.id, one.index))
        if written is None:
            return one
        if one.partition_epoch < written.partition_epoch:
            return written
        del self._written[topic.id, one.index]
        return one

    async def _write_decided(self, decided: Sequence[StateChange | ErrorCode]) -> list[AlteredPartition]:
        """In their order. INVALID_UPDATE_VERSION for a state that has changed meanwhile."""
        changes = [one for one in decided if isinstance(one, StateChange)]
        written: dict[StateChange, None] = {}
        async for together in in_slices(changes, _TOGETHER_MAX):
            written.update(dict.fromkeys(await self._write(together)))
        _log_elections(written)
        answers = []
        for one in decided:
            if isinstance(one, ErrorCode):
                answers.append(AlteredPartition(one))
            elif one in written:
                answers.append(AlteredPartition(ErrorCode.NONE, one.after))
            else:
                answers.append(AlteredPartition(ErrorCode.INVALID_UPDATE_VERSION))
        return answers

    async def _write(self, changes: Sequence[StateChange]) -> Sequence[StateChange]:
        """Returns those that were written; the others have changed meanwhile."""
        try:
            await self._controllership.multi([_operation(change) for change in changes])
        except (BadVersion, NoNode):
            if len(changes) == 1:
                return ()
            return [one for change in changes for one in await self._write([change])]
        for change in changes:
            self._written[change.topic_id, change.before.index] = change.after
        return changes


def _operation(change: StateChange) -> SetData:
    return SetData(PartitionState.path_of(*change.partition), change.state.encode(), change.version)


def _log_elections(written: Iterable[StateChange]) -> None:
    offline = []
    for change in written:
        if change.ends_leadership:
            offline.append(change.partition)
        if change.is_unclean:
            logger.error(
                "broker %d leads %s though it was not in sync: acknowledged records may be lost",
                change.state.leader,
                change.partition,
            )
    if offline:
        logger.warning("partitions without a leader: %d, the first is %s", len(offline), offline[0])
