"""The controller at work: what this broker does for all of them while it is elected.

```
store's watches ──▶ changes ──▶ history (the image that every broker follows) ──▶ elections ──▶ conditional writes
                                                                                      └── come back by the watches
```

A new controller acts first on the image that it followed: brokers that are gone are known by one read, and states are
written only over the versions that the image has. Then it reads the tree, and what its predecessor wrote last joins the
image. Until then (`is_whole`) only changes are told, never a whole image: it may be behind what others have seen. An
image that came by an older version of FetchImage may lack what states have: then the tree is read first.

Every write checks the controller's epoch. When another broker was elected, or the session is over, `run` ends.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Final
from uuid import UUID

from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.ids import TopicPartition
from barnabas.controller.additions import ReplicaAdditions
from barnabas.controller.alterations import AlteredPartition, AskedIsr
from barnabas.controller.balance import unbalanced_partitions
from barnabas.controller.controller_options import DEFAULT_OPTIONS, ControllerOptions
from barnabas.controller.controllership import Controllership
from barnabas.controller.elections import Choice, Elections
from barnabas.controller.history import NEWEST_VERSION, ImageHistory
from barnabas.controller.in_sync import led_by_preferred
from barnabas.controller.leaders import due_states
from barnabas.controller.log_ends import LinkTo, Unled, ask_log_ends
from barnabas.controller.topics import TopicWriter
from barnabas.controller.watcher import MetadataWatcher
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.image import (
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    Change,
    ClusterImage,
    PartitionsChanged,
    Topic,
    TopicChanged,
    TopicConfigsChanged,
)
from barnabas.metadata.store import SessionState
from barnabas.metadata.znodes import BROKER_IDS
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 5.0
_ASK_AGAIN_SECONDS: Final = 1.0


class Controller:
    """Owner: the event loop of the broker that is the controller."""

    def __init__(
        self,
        controllership: Controllership,
        history: ImageHistory,
        random: Random,
        options: ControllerOptions = DEFAULT_OPTIONS,
        link_to: LinkTo = lambda image, broker_id: None,
    ) -> None:
        """`link_to` is the way to replicas that must be asked where their logs end."""
        self.controllership = controllership
        self.history = history
        self.topics = TopicWriter(controllership, random, lambda: history.image, options.rules_of)
        self.additions = ReplicaAdditions(controllership, lambda: history.image, options.rules_of)
        self.is_whole = asyncio.Event()
        """Set when the tree was read: the image has everything that was ever acknowledged."""
        self._options = options
        self._link_to = link_to
        self._must_look = asyncio.Event()
        """Set when logs may have to be asked who could lead."""
        self._elections = Elections(controllership, options.rules_of)
        self._topics_due: dict[str, None] = {}
        self._brokers_due: dict[int, None] = {}
        self._is_unfinished = True
        """Whether topics may be half created or deleted, since the last controller died."""
        self._is_due = asyncio.Event()
        self.problem: BarnabasError | None = None
        """Why leaders are not elected now; tried again."""
        self.on_problem: Callable[[BarnabasError], None] = lambda problem: None

    async def run(self) -> None:
        """Until another broker is the controller, or the session is lost."""
        store = self.controllership.store
        self.history.begin_epoch(self.controllership.epoch, self.controllership.broker_id)
        if self.history.version == NEWEST_VERSION:  # else states would be written without what the image lacks
            await self._take_over()
        watcher = MetadataWatcher(store, self.history.image, self._publish)
        await watcher.load()
        self.history.complete()
        self._topics_due.update(dict.fromkeys(self.history.image.topics))  # its predecessor may have had other settings
        self.is_whole.set()
        self._is_due.set()
        store.add_session_listener(self._session_changed)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(watcher.run())
                group.create_task(self._decide())
                group.create_task(self._keep_balanced())
                group.create_task(self._ask_logs())
        finally:
            store.remove_session_listener(self._session_changed)

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, asked: Sequence[AskedIsr]
    ) -> list[AlteredPartition]:
        """What leaders on a broker propose, in the order of what is asked.

        STALE_BROKER_EPOCH when the broker has another registration, or none. NOT_CONTROLLER when nobody knows what was
        written.
        """
        self._check_registration(broker_id, broker_epoch)
        with _unknown_outcome():
            return await self._elections.alter(self.history.image, broker_id, broker_epoch, asked)

    async def let_stop(self, broker_id: int, broker_epoch: int) -> None:
        """Has others lead what this broker leads, where they can; returns when the image says so. Errors as above."""
        self._check_registration(broker_id, broker_epoch)
        with _unknown_outcome():
            written = await self._elections.move_off(self.history.image, broker_id)
        if written:
            logger.info("broker %d is about to stop: partitions that others have now: %d", broker_id, len(written))
            await self.history.wait_for(lambda image: all(change.is_in(image) for change in written))

    async def take_offline(self, broker_id: int, broker_epoch: int, replicas: Sequence[tuple[UUID, int]]) -> None:
        """The log directories of these replicas, by topic id and number, have failed: the broker neither leads them nor
        is it in sync any more. Returns when the image says so. Errors as above.
        """
        self._check_registration(broker_id, broker_epoch)
        with _unknown_outcome():
            written = await self._elections.take_offline(self.history.image, broker_id, replicas)
        if written:
            logger.warning("broker %d has lost log directories: partitions there: %d", broker_id, len(written))
            await self.history.wait_for(lambda image: all(change.is_in(image) for change in written))

    def _check_registration(self, broker_id: int, broker_epoch: int) -> None:
        broker = self.history.image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has another registration than that")

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], choose: Choice
    ) -> list[tuple[TopicPartition, AlteredPartition]]:
        """Has somebody else lead these partitions, if the choice says so. NOT_CONTROLLER as above."""
        with _unknown_outcome():
            return await self._elections.elect(self.history.image, partitions, choose)

    async def _ask_logs(self) -> None:
        """Where the states name nobody who could lead, the longest of all logs does."""
        unled: Unled = {}
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ASK_AGAIN_SECONDS if unled else None):
                    await self._must_look.wait()
            self._must_look.clear()
            image = self.history.image
            unled = self._elections.unled(image)
            if not unled:
                continue
            ends = await ask_log_ends(image, unled, self._link_to)
            try:
                await self._elections.elect_longest(image, ends)
            except (SessionLost, DiskFailed) as error:
                logger.warning("leaders are not elected until the metadata can be written: %s", error)

    async def _keep_balanced(self) -> None:
        """From time to time, preferred replicas lead again."""
        options = self._options
        while options.rebalance_seconds is not None:
            await asyncio.sleep(options.rebalance_seconds)
            unbalanced = unbalanced_partitions(self.history.image, options.imbalance_percent_max)
            try:
                answers = await self._elections.elect(self.history.image, unbalanced, led_by_preferred)
            except (SessionLost, DiskFailed) as error:
                logger.warning("leaders are not balanced until the metadata can be written: %s", error)
                continue
            moved = sum(answer.error_code is ErrorCode.NONE for _, answer in answers)
            if moved:
                logger.info("partitions that are led by their preferred replicas again: %d", moved)

    def has_due_states(self) -> bool:
        """Whether the image is not yet as this controller wants it."""
        return next(due_states(self.history.image, self._options.rules_of, self.controllership.epoch), None) is not None

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._is_due.set()

    async def _take_over(self) -> None:
        """On the image as it is: the brokers that died with the last controller lead nothing any more."""
        names = await self.controllership.store.children(BROKER_IDS)
        gone = [broker for broker in self.history.image.brokers if str(broker) not in names]
        self._publish(*self.history.image.follow([BrokerRemoved(broker) for broker in gone]))
        try:
            await self._hold_elections()
        except DiskFailed as error:
            self._say(error)

    def _publish(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        """The image is the next one now; what follows from it is decided soon."""
        self._elections.follow(self.history.image, image)
        self.history.publish(image, changes)
        for change in changes:
            match change:
                case TopicChanged(topic):
                    self._topics_due[topic.name] = None
                case PartitionsChanged(name=name) | TopicConfigsChanged(name=name):
                    self._topics_due[name] = None
                case BrokerConfigsChanged():
                    self._topics_due.update(dict.fromkeys(image.topics))
                case BrokerChanged(broker):
                    self._brokers_due[broker.id] = None
                case BrokerRemoved(broker_id):
                    self._brokers_due[broker_id] = None
        if self._topics_due or self._brokers_due:
            self._is_due.set()

    async def _decide(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            try:
                await self._hold_elections()
                if self._is_unfinished:
                    await self.topics.finish_interrupted(self.history.image)
                    self._is_unfinished = False
                if self.problem is not None:
                    logger.info("leaders are elected again: records can be produced")
                self.problem = None
                self._must_look.set()
            except (SessionLost, DiskFailed) as error:  # what is due is tried again when it is connected
                self._say(error)
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._is_due.set)

    def _say(self, problem: BarnabasError) -> None:
        if self.problem is None:
            logger.warning("leaders are not elected until the metadata can be written: %s", problem)
        self.problem = problem
        self.on_problem(problem)

    async def _hold_elections(self) -> None:
        """What is due stays due until it is written."""
        while self._topics_due or self._brokers_due:
            topics, self._topics_due = self._topics_due, {}
            brokers, self._brokers_due = self._brokers_due, {}
            image = self.history.image
            try:
                if brokers:
                    await self._elections.hold(image, image.topics.values(), brokers)
                changed: list[Topic] = [image.topics[name] for name in topics if name in image.topics]
                await self._elections.hold(image, changed)
                for topic in changed:
                    await self.additions.complete(topic)
            except BarnabasError:
                self._topics_due = {**topics, **self._topics_due}
                self._brokers_due = {**brokers, **self._brokers_due}
                raise


@contextmanager
def _unknown_outcome() -> Iterator[None]:
    """Answers NOT_CONTROLLER when it is not known what was written."""
    try:
        yield
    except (SessionLost, DiskFailed) as error:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, f"it is not known what was written: {error}") from error
