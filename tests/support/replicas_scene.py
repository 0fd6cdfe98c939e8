"""`Replicas` over logs on a simulated disk, with images that the test makes and workers that it lets go on."""

import asyncio
from collections.abc import Collection, Iterable
from random import Random
from typing import cast
from uuid import UUID

from barnabas.base.clock import ManualClock
from barnabas.metadata.deletions import Deletions
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.image import ClusterImage, Partition, Topic, TopicChanged, TopicRemoved
from barnabas.replication.flushing import Flusher
from barnabas.replication.replicas import Replicas
from barnabas.replication.tick import AppendTick
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.settings import LogConfig
from tests.support.held_workers import HeldWorkers
from tests.support.log_directories import open_manager
from tests.support.played_replies import PlayedReplies

BROKER, OTHER = 1, 2
BROKER_EPOCH = 100
ORDERS_ID, OTHER_ID = UUID(int=1), UUID(int=2)


class PlayedDeletions:
    """What the metadata says was deleted."""

    def __init__(self) -> None:
        self.deleted: set[UUID] = set()
        self.confirmed: list[UUID] = []
        self.is_lost = False
        """Whether the session is."""

    async def recorded(self, topic_ids: Collection[UUID]) -> set[UUID]:
        if self.is_lost and topic_ids:
            raise SessionLost("the session is lost")
        return self.deleted & set(topic_ids)

    def confirm(self, topic_ids: Iterable[UUID]) -> None:
        self.confirmed += topic_ids


def led(
    index: int = 0,
    *,
    leader: int = BROKER,
    epoch: int = 0,
    isr: tuple[int, ...] = (BROKER,),
    replicas: tuple[int, ...] = (BROKER, OTHER),
    partition_epoch: int = 0,
    broker_epoch: int = BROKER_EPOCH,
) -> Partition:
    """A partition whose leadership is granted to this registration of its leader."""
    return Partition(
        index,
        replicas,
        leader=leader,
        leader_epoch=epoch,
        isr=isr,
        partition_epoch=partition_epoch,
        isr_epochs=(broker_epoch,) * len(isr),
    )


def topic(*partitions: Partition, name: str = "orders", topic_id: UUID = ORDERS_ID) -> Topic:
    return Topic(name, topic_id, partitions or (led(),))


class ReplicasScene:
    """`holds_workers` keeps what would block until the test lets it go on."""

    def __init__(self, disk: SimulatedDisk | None = None, *, paths: Iterable[str] = ("/a",)) -> None:
        self.clock = ManualClock()
        self.disk = disk or SimulatedDisk(Random(3), clock=self.clock)
        self.manager, _ = open_manager(self.disk, self.clock, paths)
        self.workers = HeldWorkers()
        self.deletions = PlayedDeletions()
        loop = asyncio.get_running_loop()
        self.tick = AppendTick(loop, self.clock, PlayedReplies())
        self.flusher = Flusher(loop, self.manager, self.workers)
        self.config = LogConfig()
        self.replicas = Replicas(
            BROKER,
            self.manager,
            lambda image, name: self.config,
            cast(Deletions, self.deletions),
            self.workers,
            self.tick,
            self.flusher.flush,
            lambda partition, failure: self.manager.on_log_failure(partition.name, failure),
        )
        self.replicas.registered(BROKER_EPOCH)
        self.manager.on_offline = lambda directory: self.replicas.drop(directory.lost, directory.failure)
        self.image = ClusterImage()
        self._running: asyncio.Task[None] | None = None

    def with_topics(self, *topics: Topic) -> ClusterImage:
        self.image = self.image.apply([TopicChanged(one) for one in topics])
        return self.image

    def without(self, name: str) -> ClusterImage:
        self.image = self.image.apply([TopicRemoved(name)])
        return self.image

    async def apply(self, image: ClusterImage) -> None:
        """Until it is served."""
        applying = asyncio.ensure_future(self.replicas.apply(image))
        await self.let_go_on(applying)

    async def let_go_on(self, until: "asyncio.Future[None]") -> None:
        while not until.done():
            if self.workers.jobs:
                self.workers.run_one()
            await asyncio.sleep(0)
        await until

    def run(self) -> None:
        """As the broker does: images are brought about one after the other."""
        self._running = asyncio.ensure_future(self.replicas.run())

    async def until_served(self, image: ClusterImage) -> None:
        await self.let_go_on(asyncio.ensure_future(self.replicas.wait_for(lambda served: served is image)))

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
