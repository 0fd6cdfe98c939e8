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
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.ids import TopicPartition
from barnabas.controller.controllership import Controllership
from barnabas.controller.elections import Elections
from barnabas.controller.history import NEWEST_VERSION, ImageHistory
from barnabas.controller.topics import TopicWriter
from barnabas.controller.watcher import MetadataWatcher
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.image import (
    BrokerChanged,
    BrokerRemoved,
    Change,
    ClusterImage,
    PartitionsChanged,
    Topic,
    TopicChanged,
    TopicRemoved,
)
from barnabas.metadata.store import SessionState
from barnabas.metadata.znodes import BROKER_IDS

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 5.0


class Controller:
    """Owner: the event loop of the broker that is the controller."""

    def __init__(self, controllership: Controllership, history: ImageHistory, random: Random) -> None:
        self.controllership = controllership
        self.history = history
        self.topics = TopicWriter(controllership, random, lambda: history.image)
        self.is_whole = asyncio.Event()
        """Set when the tree was read: the image has everything that was ever acknowledged."""
        self._elections = Elections(controllership)
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
        self.is_whole.set()
        self._is_due.set()
        store.add_session_listener(self._session_changed)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(watcher.run())
                group.create_task(self._decide())
        finally:
            store.remove_session_listener(self._session_changed)

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
        removed = [self.history.image.topics.get(one.name) for one in changes if isinstance(one, TopicRemoved)]
        self._elections.forget(
            TopicPartition(topic.name, one.index) for topic in removed if topic is not None for one in topic.partitions
        )
        self.history.publish(image, changes)
        for change in changes:
            match change:
                case TopicChanged(topic):
                    self._topics_due[topic.name] = None
                case PartitionsChanged(name=name):
                    self._topics_due[name] = None
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
            except BarnabasError:
                self._topics_due = {**topics, **self._topics_due}
                self._brokers_due = {**brokers, **self._brokers_due}
                raise
