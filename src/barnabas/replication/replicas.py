"""The partitions of this broker, led or followed, brought in line with the cluster's image.

The image says which topics there are, who leads their partitions and how they are configured; it changes through the
metadata store's watches, alone and in a cluster alike. A new one is followed in two steps:

| when | what |
|---|---|
| at once (`follow`) | of logs that exist: leadership taken, updated, and above all given up; who is followed |
| behind (`run`) | logs of new partitions are made, those of deleted ones removed, changed settings swapped in |

The second step works for the image that it was begun with, while newer ones come: a log that it has made is led only
if, and as, the newest image says so. What handlers find here is always served; what is on its way is not there yet.

A leadership is a grant of the controller to one registration of this broker (`registered`). One that was resigned
(`resign_all`) is not taken again: only a later epoch is another one. While the controller cannot write grants down, the
only replica of a partition may be read in the epoch of its last one (`serve_ungranted`): nobody else can lead it.

A log is a partition's by its topic id, never by its name alone: a topic may have been deleted and made again. Files are
removed only when the metadata says that the topic was deleted (`topic_removal`).

Owner: the broker's event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final, TypeAlias
from uuid import UUID

from barnabas.base.errors import BarnabasError, DiskFailed, DiskFull
from barnabas.base.ids import NO_EPOCH, LeaderEpoch, Offset, SteadyMs, TopicPartition
from barnabas.base.pausing import in_slices
from barnabas.base.texts import shortened
from barnabas.metadata.deletions import Deletions
from barnabas.metadata.image import ClusterImage, Topic
from barnabas.metadata.image import Partition as PartitionImage
from barnabas.replication.following import Following
from barnabas.replication.leader import UNKNOWN_EPOCH, Grant
from barnabas.replication.lost_leaders import LostLeaders
from barnabas.replication.partition import Partition
from barnabas.replication.tick import AppendTick
from barnabas.replication.topic_removal import SLICE_LENGTH, TopicRemoval, names_of
from barnabas.replication.workers import perform, perform_all
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.directories.opening import OpenedLog
from barnabas.storage.log.log import Log
from barnabas.storage.log.traffic import TopicTraffic
from barnabas.storage.settings import LogConfig
from barnabas.storage.work import Job
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.leaders import NO_LEADER, LeaderAndEpoch, NodeEndpoint
from barnabas.wire.primitives import uuid_of

logger = logging.getLogger(__name__)

ConfigOfTopic: TypeAlias = Callable[[ClusterImage, str], LogConfig]

_RETRY_INTERVAL_MS: Final = 5_000
_SURVIVED_FROM: Final = 2
"""Partitions are created in epoch 0, and the start after that, which may find that a crash came before their logs,
gives them epoch 1. From the next one on they were led, so that they had logs."""


class Replicas:
    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        config_of_topic: ConfigOfTopic,
        deletions: Deletions,
        workers: Executor,
        tick: AppendTick,
        flush: Callable[[TopicPartition], None],
        on_failure: Callable[[Partition, DiskFailed], None] = lambda partition, failure: None,
        following: Following | None = None,
    ) -> None:
        """`flush` begins to sync a log if that is due; `on_failure` is called when the disk fails under a partition.

        Without `following` nothing is fetched from other brokers.
        """
        self._broker_id = broker_id
        self._logs = logs
        self._tick = tick
        self._flush = flush
        self._on_failure = on_failure
        self.on_joinable: Callable[[Partition], None] = lambda partition: None
        """Called when a follower of a partition has caught up that is not in sync."""
        self.on_taken_out: Callable[[Partition], None] = lambda partition: None
        """Called when the controller has taken one out of the ISR unasked."""
        self.leaderships_begun = self.isr_shrinks = self.isr_expansions = 0
        """How often, of partitions that are led here."""
        self._following = following
        if following is not None:
            following.truncate = self.truncate
            following.restart = self.restart
        logs.tell_flushes(self._flushed)
        self._is_started = False
        """Whether an image was applied: partitions that come later are new."""
        self._unserved: dict[TopicPartition, UUID] = {}
        """Partitions that this broker leads or follows and has no log of, with their topics' ids."""
        self._uncreated: set[TopicPartition] = set()
        """Those of them that there was no room for."""
        self._truncating: set[TopicPartition] = set()
        self._retry_ms: SteadyMs = 0
        self._config_of_topic = config_of_topic
        self._removal = TopicRemoval(broker_id, logs, deletions, workers)
        self._workers = workers
        self._partitions: dict[tuple[str, int], Partition] = {}
        self.traffic: dict[str, TopicTraffic] = {}
        """By topic; kept until the topic is deleted."""
        self._found: dict[tuple[str | bytes, int], Partition] = {}
        """What `find` was asked for since something changed: the usual case in one look."""
        self._resigned: dict[tuple[str, int], LeaderEpoch] = {}
        """Up to which epoch leadership is not taken any more."""
        self._broker_epoch: int | None = None
        """Of the registration that there is now."""
        self._ungranted: BarnabasError | None = None
        """Why partitions that only this broker has are read without a grant."""
        self._wanted: asyncio.Queue[ClusterImage] = asyncio.Queue()
        self._applied = asyncio.Condition()
        self.image = ClusterImage()
        """The image that is served."""
        self._coming = self.image
        """The newest one, which is being brought about; mostly the same. It says who leads."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._partitions.values()))

    def with_followers(self) -> list[Partition]:
        """Those that are led here, and are on other brokers, too."""
        return [one for one in self._partitions.values() if one.has_followers]

    @property
    def lost_leaders(self) -> LostLeaders | None:
        """Brokers that lead what this one follows, and seem to be gone; None when it follows nobody."""
        return self._following.side.lost_leaders if self._following else None

    # -- finding -------------------------------------------------------------------------------------------------

    def find(self, topic: str | bytes, index: int) -> Partition:
        """The partition by its topic's name, or by the bytes of its id; refused when it is not led here."""
        return self._found.get((topic, index)) or self._look_up(topic, index)

    def _look_up(self, topic: str | bytes, index: int) -> Partition:
        name = self.topic_name(topic)
        partition = self._partitions.get((name, index))
        if partition is None:
            raise self._problem_with(name, index)
        self._found[topic, index] = partition
        return partition

    def topic_name(self, topic: str | bytes) -> str:
        """The name of a topic that a request names, or gives the id of."""
        return topic if isinstance(topic, str) else self._name_of(topic)

    def _name_of(self, id_bytes: bytes) -> str:
        topic_id = uuid_of(id_bytes)
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        if topic_id not in self._coming.topics_by_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"the topic with the id {topic_id} is being deleted")
        return topic.name

    def _problem_with(self, name: str, index: int) -> KafkaError:
        known = self.image.partition(name, index) and self._coming.partition(name, index)
        if known is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{shortened(name)}-{index} does not exist")
        if known.leader != self._broker_id:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {known.leader} leads {name}-{index}")
        if known.leader_epoch <= self._resigned.get((name, index), NO_EPOCH):
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has resigned the leadership of {name}-{index}"
            )
        if not self._may_serve(known):
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leadership of {name}-{index} is not granted to this broker yet"
            )
        if (name, index) in self._truncating:
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index} has no leader yet: its log is being truncated"
            )
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}-{index} is in a log directory that is offline")

    def get(self, name: str, index: int) -> Partition | None:
        return self._partitions.get((name, index))

    def leader_of(self, topic: str | bytes, index: int) -> LeaderAndEpoch:
        """Who leads a partition as far as this broker knows, to tell a client that asked the wrong one."""
        image = self._coming
        known = image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(uuid_of(topic))
        partition = known.partition(index) if known else None
        return NO_LEADER if partition is None else LeaderAndEpoch(partition.leader, partition.leader_epoch)

    def endpoints_of(self, leaders: Iterable[LeaderAndEpoch], listener: str) -> list[NodeEndpoint]:
        """Where a client of this listener finds the leaders that an answer names, each once."""
        endpoints = []
        for broker_id in dict.fromkeys(leader.leader_id for leader in leaders):
            broker = self.image.broker(broker_id)
            endpoint = broker.endpoint(listener) if broker else None
            if broker and endpoint:
                endpoints.append(NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
        return endpoints

    # -- following the image -------------------------------------------------------------------------------------

    def follow(self, image: ClusterImage) -> None:
        """There is a newer image: who leads is so at once, the rest as soon as `run` has come to it."""
        self._change_leaders(image)
        self._wanted.put_nowait(image)

    async def run(self) -> None:
        while True:
            image = await self._wanted.get()
            while not self._wanted.empty():
                image = self._wanted.get_nowait()
            await self._bring_about(image)

    async def wait_for(self, predicate: Callable[[ClusterImage], bool]) -> None:
        """Waits until an image is served that the predicate holds for."""
        async with self._applied:
            await self._applied.wait_for(lambda: predicate(self.image))

    @property
    def coming(self) -> ClusterImage:
        """The newest image, which is being brought about; mostly the one that is served."""
        return self._coming

    async def apply(self, image: ClusterImage) -> None:
        """Follows the image, and returns when it is served."""
        self._change_leaders(image)
        await self._bring_about(image)

    def _change_leaders(self, image: ClusterImage) -> None:
        """Of partitions that are served, and of logs that are there. Nothing is looked at that has not changed."""
        before, self._coming = self._coming, image
        if not self._is_started and not self._partitions:
            return  # nobody is served yet
        for topic in image.topics_gone_since(before):
            for one in topic.partitions:
                self._leave((topic.name, one.index))
                self._stop_serving((topic.name, one.index))
        for name in image.topics_changed_since(before):
            known, changed = before.topics.get(name), image.topics.get(name)
            if known is None or changed is None or known.id != changed.id:
                continue  # of a topic that comes no log is there yet
            for old, new in zip(known.partitions, changed.partitions, strict=False):
                if old is not new:
                    self._lead(changed, new)

    async def _bring_about(self, image: ClusterImage) -> None:
        """In slices, because a topic may have ten thousand partitions."""
        names = dict.fromkeys(image.topics_changed_since(self.image))
        names.update(dict.fromkeys(name.topic for name in self._unserved))
        changed = [topic for name in names if (topic := image.topics.get(name)) is not None]
        gone = image.topics_gone_since(self.image)
        await self._withdraw(gone)
        deleted = await self._removal.remove(gone, self.image, image)
        await self._removal.evict(changed)
        await self._create(image, changed)
        partitions = ((topic, one) for topic in changed for one in topic.partitions)
        async for together in in_slices(partitions, SLICE_LENGTH):
            for topic, one in together:
                self._lead_as_of_now(topic, one.index)
        await self._configure(image)
        self.image = image
        self._is_started = True
        self._found.clear()
        self._removal.confirm(deleted)
        async with self._applied:
            self._applied.notify_all()

    async def truncate(self, name: TopicPartition, offset: Offset) -> None:
        """Cuts the log of a partition that another broker leads, with the blocking part in a worker.

        Should this broker become its leader meanwhile, that begins when the log is cut. Raises what the disk says.
        """
        await self._cut(name, lambda: self._logs.truncation(name, offset))

    async def restart(self, name: TopicPartition, offset: Offset) -> None:
        """Empties the log of a partition that another broker leads, to go on at `offset`; otherwise as `truncate`."""
        await self._cut(name, lambda: self._logs.restart(name, offset))

    async def _cut(self, name: TopicPartition, job_of: Callable[[], Job[None]]) -> None:
        if name in self._partitions or name in self._truncating or self._logs.get(name) is None:
            return  # another image came first
        job = job_of()
        self._truncating.add(name)
        try:
            await perform(job, self._workers)
        finally:
            self._truncating.discard(name)
            topic = self._coming.topics.get(name.topic)
            if topic is not None:
                self._lead_as_of_now(topic, name.partition)
        if job.error is not None:
            raise job.error

    def expect_stop(self) -> None:
        """This broker is about to stop: what it leads now, it will not follow when others lead it."""
        if self._following is not None:
            self._following.is_ending = True

    def resign_all(self) -> None:
        """Gives up every leadership, granted or taken, for good: the next one has a later epoch.

        A broker does this before it registers again, and when it stops.
        """
        self._resigned.update(self._led_epochs(self._coming))
        self._broker_epoch = self._ungranted = None
        if self._following is not None:
            self._following.leave_all()
        for name in tuple(self._partitions):
            self._stop_serving(name)
        self._unserved.clear()

    def registered(self, broker_epoch: int) -> None:
        """Leaderships are those of this registration from now on."""
        self._broker_epoch = broker_epoch
        if self._following is not None:
            self._following.side.broker_epoch = broker_epoch
        self._lead_all()

    def serve_ungranted(self, reason: BarnabasError) -> None:
        """The controller cannot write grants down: what only this broker has is read meanwhile."""
        self._ungranted = reason
        self._lead_all()

    def is_granted_all(self, image: ClusterImage) -> bool:
        """Whether every partition that this broker leads by the image is granted to its registration."""
        return all(
            self._is_granted(one)
            for topic in image.topics.values()
            for one in topic.partitions
            if one.leader == self._broker_id
        )

    def _lead_all(self) -> None:
        if self._is_started:
            for topic in self._coming.topics.values():
                for one in topic.partitions:
                    if self._broker_id in one.replicas:
                        self._lead(topic, one)

    def _is_granted(self, one: PartitionImage) -> bool:
        return self._broker_epoch is not None and one.is_granted_to(self._broker_id, self._broker_epoch)

    def _may_serve(self, one: PartitionImage) -> bool:
        is_alone = one.leader == self._broker_id and one.replicas == (self._broker_id,)
        return self._is_granted(one) or (is_alone and self._ungranted is not None)

    def _led_epochs(self, image: ClusterImage) -> dict[tuple[str, int], LeaderEpoch]:
        return {
            (topic.name, one.index): one.leader_epoch
            for topic in image.topics.values()
            for one in topic.partitions
            if one.leader == self._broker_id
        }

    async def _withdraw(self, topics: Iterable[Topic]) -> None:
        """Takes topics that are gone out of service."""
        names = (name for topic in topics for name in names_of(topic))
        async for together in in_slices(names, SLICE_LENGTH):
            for name in together:
                self.traffic.pop(name.topic, None)
                self._unserved.pop(name, None)
                self._uncreated.discard(name)
                self._leave(name)
                self._stop_serving(name)

    async def _create(self, image: ClusterImage, topics: Iterable[Topic]) -> None:
        """Makes the logs that are missing. One for which there is no room now is `retry`'s."""
        refusals: dict[TopicPartition, BarnabasError] = {}
        emptied: list[TopicPartition] = []
        missing = (one for topic in topics for one in self._creations(image, topic, refusals))
        async for together in in_slices(missing, SLICE_LENGTH):
            await perform_all((creation for _, creation, _ in together), self._workers)
            for name, creation, is_new in together:
                if isinstance(creation.error, DiskFull):
                    self._uncreated.add(name)
                else:
                    self._uncreated.discard(name)
                if not is_new and creation.error is None and self._should_have_records(image, name):
                    emptied.append(name)
        _tell_emptied(image, emptied, self._broker_id)
        if refusals:
            name, first = next(iter(refusals.items()))
            logger.error("partitions that cannot be created: %d, the first is %s: %s", len(refusals), name, first)

    def _should_have_records(self, image: ClusterImage, name: TopicPartition) -> bool:
        """Whether a log that was just made is empty, though the metadata or a checkpoint knows of an earlier one."""
        log, one = self._logs.get(name), image.partition(*name)
        if log is None or log.end_offset or one is None:
            return False
        was_in_sync = self._broker_id in (*one.isr, *one.elr) and one.leader_epoch >= _SURVIVED_FROM
        return was_in_sync or self._logs.directories.remember(name)

    def _creations(
        self, image: ClusterImage, topic: Topic, refusals: dict[TopicPartition, BarnabasError]
    ) -> Iterator[tuple[TopicPartition, Job[OpenedLog], bool]]:
        """With whether they are new: a partition of the first image may lie in a directory that is offline."""
        known = self.image.topics.get(topic.name)
        known_partitions = known.partitions if known is not None and known.id == topic.id else ()
        config = None
        for one in topic.partitions:
            name = TopicPartition(topic.name, one.index)
            if self._broker_id not in one.replicas or self._has_log(name, topic.id):
                continue
            before = known_partitions[one.index].replicas if one.index < len(known_partitions) else ()
            is_new = name in self._uncreated or (self._is_started and self._broker_id not in before)
            config = config or self._config_of_topic(image, topic.name)
            try:
                yield name, self._logs.creation(name, topic.id, config, is_new=is_new), is_new
            except BarnabasError as error:
                refusals[name] = error

    def retry(self, now_ms: SteadyMs) -> None:
        """Looks again at partitions without a log, now and then: it may be open by now, or there may be room for it.

        And at topics of which it could not be asked whether they were deleted.
        """
        is_due = self._unserved or self._removal.is_undecided
        if not is_due or now_ms < self._retry_ms or self.image is not self._coming:
            return
        self._retry_ms = now_ms + _RETRY_INTERVAL_MS
        unserved = self._unserved.items()
        if self._removal.is_undecided or any(
            name in self._uncreated or self._log_of(name, topic_id) is not None for name, topic_id in unserved
        ):
            self.follow(replace(self.image))  # a copy, so that those who wait for changes see a new one

    def _log_of(self, name: TopicPartition, topic_id: UUID) -> Log | None:
        """None also for one that cannot be served: its directory is offline, it is another topic's, or being cut."""
        return None if name in self._truncating else self._open_log_of(name, topic_id)

    def _open_log_of(self, name: TopicPartition, topic_id: UUID) -> Log | None:
        try:
            return self._logs.get(name, topic_id)
        except KafkaError:
            return None

    def _lead_as_of_now(self, topic: Topic, index: int) -> None:
        """What the newest image says of a partition, which an older one has brought here."""
        newest = self._coming.topics.get(topic.name)
        one = newest.partition(index) if newest is not None and newest.id == topic.id else None
        if newest is not None and one is not None:
            self._lead(newest, one)

    def _lead(self, topic: Topic, one: PartitionImage) -> None:
        name = TopicPartition(topic.name, one.index)
        log = self._log_of(name, topic.id)
        is_leader = (
            one.leader_epoch != NO_EPOCH
            and self._may_serve(one)
            and one.leader_epoch > self._resigned.get(name, NO_EPOCH)
        )
        if log is None and (is_leader or self._is_follower(one)):
            self._unserved[name] = topic.id
        else:
            self._unserved.pop(name, None)
        partition = self._partitions.get(name)
        if partition is not None and (
            log is None or not is_leader or partition.leader_epoch != one.leader_epoch or not partition.is_over(log)
        ):
            self._stop_serving(name)
            partition = None
        self._follow(topic, one, name, log)
        if log is None or not is_leader:
            return
        if partition is None:
            partition = self._begin_serving(topic, name, log, one)
            self.leaderships_begun += 1
        else:
            self.isr_shrinks += len(one.isr) < len(partition.state.isr)
            self.isr_expansions += len(one.isr) > len(partition.state.isr)
        partition.lead(_grant(one, UNKNOWN_EPOCH if self._broker_epoch is None else self._broker_epoch))

    def _follow(self, topic: Topic, one: PartitionImage, name: TopicPartition, log: Log | None) -> None:
        """Fetches from the leader, if that is another broker; before this one leads, nothing is fetched any more."""
        if self._following is None:
            return
        if log is not None and self._is_follower(one) and self._broker_epoch is not None:
            self._following.follow(name, topic.id, log, one.leader, one.leader_epoch)
        else:
            self._following.leave(name)

    def _is_follower(self, one: PartitionImage) -> bool:
        return self._broker_id in one.replicas and one.leader not in (self._broker_id, NO_LEADER.leader_id)

    def _begin_serving(self, topic: Topic, name: TopicPartition, log: Log, one: PartitionImage) -> Partition:
        log.traffic = self.traffic.setdefault(topic.name, log.traffic)
        partition = self._partitions[name] = Partition(
            name,
            topic.id,
            log,
            self._tick,
            is_internal=topic.is_internal,
            flush=self._flush,
            on_failure=self._on_failure,
            on_joinable=self.on_joinable,
            on_taken_out=self.on_taken_out,
        )
        if self._ungranted is not None and not self._is_granted(one):
            partition.refuse_appends(self._ungranted)
        return partition

    def _has_log(self, name: TopicPartition, topic_id: UUID) -> bool:
        """Whether there is one, even one that cannot be used."""
        try:
            return self._logs.get(name, topic_id) is not None
        except KafkaError:
            return True

    def _stop_serving(self, name: tuple[str, int], reason: BarnabasError | None = None) -> None:
        """Another broker leads it, or its log is gone: waiting callers are notified."""
        partition = self._partitions.pop(name, None)
        if partition is not None:
            self._found.clear()
            partition.close(reason)

    def _leave(self, name: tuple[str, int]) -> None:
        """Nothing is fetched for it any more."""
        if self._following is not None:
            self._following.leave(TopicPartition(*name))

    def _flushed(self, log: Log, failure: DiskFailed | None) -> None:
        partition = self._partitions.get(log.partition)
        if partition is not None and partition.is_over(log):
            partition.flushed(failure)
        elif self._following is not None and failure is None:
            self._following.flushed(log)

    async def _configure(self, image: ClusterImage) -> None:
        """Swaps in the settings of topics whose own, or the broker's, have changed."""
        before, after = self.image.topic_configs, image.topic_configs
        if image.broker_configs != self.image.broker_configs:
            names = [*image.topics]
        elif after is not before:
            names = [name for name in {**before, **after} if before.get(name) is not after.get(name)]
        else:
            return
        topics = (image.topics[name] for name in names if name in image.topics)
        async for together in in_slices(topics, SLICE_LENGTH):
            for topic in together:
                config = self._config_of_topic(image, topic.name)
                for one in topic.partitions:
                    name = TopicPartition(topic.name, one.index)
                    partition, log = self._partitions.get(name), self._open_log_of(name, topic.id)
                    if partition is not None:
                        partition.configure(config)
                    elif log is not None:
                        log.config = config

    def is_offline(self, name: TopicPartition, topic_id: UUID) -> bool:
        """Whether a replica that this broker should have cannot be used, as its log directory has failed."""
        if name in self._uncreated or not self._logs.offline_directories:
            return False
        return self._open_log_of(name, topic_id) is None

    def drop(self, names: Iterable[TopicPartition], failure: BarnabasError | None) -> None:
        """Their directory has failed: they are not served any more."""
        for name in tuple(names):
            self._leave(name)
            self._stop_serving(name, failure)


def _tell_emptied(image: ClusterImage, emptied: Iterable[TopicPartition], broker_id: int) -> None:
    """Only what no other replica has is lost."""
    only: list[TopicPartition] = []
    copies: list[TopicPartition] = []
    for name in emptied:
        one = image.partition(*name)
        has_others = one is not None and any(member != broker_id for member in (*one.isr, *one.elr))
        (copies if has_others else only).append(name)
    if only:
        logger.error(
            "partitions that this broker led before have no log and are created empty: %d, the first is %s. If a "
            "disk is missing or files were removed, stop the broker and restore them: new records reuse the "
            "offsets of the missing ones",
            len(only),
            only[0],
        )
    if copies:
        logger.warning(
            "replicas that were in sync have no log, and are fetched from their leaders: %d, the first is %s",
            len(copies),
            copies[0],
        )


def _grant(one: PartitionImage, broker_epoch: int) -> Grant:
    epochs = one.isr_epochs or (UNKNOWN_EPOCH,) * len(one.isr)
    isr = dict(zip(one.isr, epochs, strict=True))
    return Grant(
        one.leader,
        one.leader_epoch,
        isr,
        one.replicas,
        one.partition_epoch,
        broker_epoch,
        one.min_insync_replicas,
        dict(zip(one.offline, one.offline_epochs, strict=True)),
    )
