"""What a test does with topics, records and groups: the same on one broker and on a cluster.

A coroutine may call these methods: each waits a few milliseconds at most, except `records` with a `count` and
`wait_for_group`, which it calls through `asyncio.to_thread`.
"""

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from barnabas.base.clock import Clock
from barnabas.base.ids import Offset, TopicPartition
from barnabas.broker import app
from barnabas.groups.transitions import GroupState
from barnabas.testing import groups, topics
from barnabas.testing.groups import GroupCondition, ObservedGroup
from barnabas.testing.records import StoredRecord, wait_for_records
from barnabas.testing.values import Record, Setting, build_batch, setting_texts

NO_SETTINGS: Final[Mapping[str, Setting]] = {}

_Result = TypeVar("_Result")


class Contents(ABC):
    """A subclass says which brokers there are; they may come and go while a method waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @abstractmethod
    def _members(self) -> list[app.Broker]:
        """The brokers that know of every change soon: all that run, the controller among them."""

    @abstractmethod
    def _holders(self) -> list[app.Broker]:
        """The brokers whose records these are."""

    @abstractmethod
    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """On the brokers' event loop."""

    # -- topics --------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, Setting] = NO_SETTINGS,
        *,
        replicas: int | None = None,
    ) -> None:
        """Returns when the topic can be used. KafkaError, or InvalidSetting, when it cannot be created.

        Without `replicas` it has as many as `default.replication.factor` says.
        """
        self._run(topics.create_topic(self._members, name, partitions, setting_texts(configs), replicas))

    def delete_topic(self, name: str) -> None:
        self._run(topics.delete_topics(self._members, [name]))

    def delete_all_topics(self) -> None:
        self._run(topics.delete_topics(self._members, self.topics()))

    def topics(self) -> list[str]:
        """The names of all topics."""
        return sorted(topics.newest_among(self._members()).services.image.topics)

    # -- records -------------------------------------------------------------------------------------------------

    def records(
        self, topic: str, count: int = 0, *, partition: int | None = None, timeout_seconds: float = 10.0
    ) -> list[StoredRecord]:
        """What is stored in a topic, by partition and offset; with a `count` it waits until there are enough.

        TimeoutError, with how many there were, when there are not enough in time. Without a `count` a topic that does
        not exist has no records.
        """
        return self._run(wait_for_records(self._holders, topic, partition, count, timeout_seconds))

    def append(
        self,
        topic: str,
        records: Iterable[bytes | Record | StoredRecord | None],
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp_ms: int | None = None,
        create: bool = False,
    ) -> Offset:
        """Stores records as one batch, so that a test has something to consume; returns the offset of the first.

        Each is a value, or a `Record` with a key, headers and a timestamp of its own; `key` and `timestamp_ms` are for
        those without. What `records` returned can be appended again. KafkaError when there is no such topic, unless
        it may `create` it.
        """
        batch = build_batch(records, key, self._clock.now_ms() if timestamp_ms is None else timestamp_ms)
        if create:
            self._run(topics.ensure_topic(self._members, topic, partition))
        return self._run(topics.append(self._holders, topic, partition, batch))

    # -- groups --------------------------------------------------------------------------------------------------

    def committed(self, group: str) -> dict[TopicPartition, Offset]:
        """What a consumer group has committed: the offset that it reads next, by topic and partition."""
        return dict(self._run(groups.observe_group(self._members(), group)).committed)

    def wait_for_group(
        self,
        group: str,
        *,
        state: str | None = None,
        members: int | None = None,
        lag: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> ObservedGroup:
        """Waits until a consumer group is in a state, has a number of members, or a lag of at most `lag` records.

        All that are given must hold at once; without any it waits for a stable group. TimeoutError says what the group
        was instead.
        """
        if state is None and members is None and lag is None:
            state = GroupState.STABLE.value
        condition = GroupCondition(state, members, lag)
        return self._run(groups.wait_for_group(self._members, group, condition, timeout_seconds))
