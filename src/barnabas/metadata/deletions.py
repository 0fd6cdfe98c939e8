"""Which deleted topics may still have files: remembered until every broker that had replicas says that it has none.

```
/barnabas/deleted_topics/ID   {"version": 1, "topic": NAME, "brokers": [1, 2]}
```

The write of the controller that deletes a topic makes the node. It is the only leave to remove a partition's
directory: one whose topic the metadata does not know may be all that is left after the metadata was lost. Each broker
takes its id out of the node when its directories are renamed durably; the last one removes the node. Without that a
killed broker could not tell, at its next start, the directory of a deleted topic from one whose metadata is lost.

A broker that never comes back would leave its nodes for ever, so the oldest of many are dropped. What that costs is a
directory that is kept as `-stray` instead of being removed.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from barnabas.base.errors import BarnabasError
from barnabas.base.uuid import parse_uuid, uuid_text
from barnabas.metadata.errors import BadVersion, CorruptNode, NoNode
from barnabas.metadata.json_node import decode_json, encode_json
from barnabas.metadata.store import Delete, MetadataStore, Node, Operation, SetData
from barnabas.metadata.znodes import DELETED_TOPICS, TopicAssignment

logger = logging.getLogger(__name__)

KEPT_MAX: Final = 10_000
_TOGETHER_MAX: Final = 500
_ATTEMPTS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """`/barnabas/deleted_topics/ID`, version 1: a topic that was deleted, and who may still have files of it."""

    topic: str
    topic_id: UUID
    brokers: tuple[int, ...]

    @classmethod
    def of(cls, assignment: TopicAssignment) -> "DeletedTopic":
        brokers = {broker for partition in assignment.partitions for broker in partition.replicas}
        return cls(assignment.topic, assignment.topic_id, tuple(sorted(brokers)))

    @staticmethod
    def path_of(topic_id: UUID) -> str:
        return f"{DELETED_TOPICS}/{uuid_text(topic_id)}"

    @property
    def path(self) -> str:
        return self.path_of(self.topic_id)

    def encode(self) -> bytes:
        return encode_json({"version": 1, "topic": self.topic, "brokers": self.brokers})

    @classmethod
    def decode(cls, topic_id: UUID, data: bytes) -> "DeletedTopic":
        fields = decode_json(cls.path_of(topic_id), data)
        return cls(fields.text("topic"), topic_id, fields.numbers("brokers"))


class Deletions:
    """The deleted topics that one broker may have files of. Owner: the broker's event loop."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._gone: dict[UUID, None] = {}
        self._is_due = asyncio.Event()

    async def load(self) -> list[DeletedTopic]:
        """All that are remembered, the oldest of too many dropped."""
        await self._store.sync()  # another broker has deleted them: this session may be behind
        ids = list(_ids(await self._store.children(DELETED_TOPICS)))
        nodes = await self._store.get_many([DeletedTopic.path_of(topic_id) for topic_id in ids])
        known = [(topic_id, node) for topic_id, node in zip(ids, nodes, strict=True) if node is not None]
        known.sort(key=lambda one: one[1].stat.czxid)
        excess = max(0, len(known) - KEPT_MAX)
        if excess:
            logger.warning("forgot the oldest %d of %d deleted topics", excess, len(known))
            await self._forget([topic_id for topic_id, _ in known[:excess]], is_for_all=True)
        return [_decoded(topic_id, node) for topic_id, node in known[excess:]]

    async def recorded(self, topic_ids: Collection[UUID]) -> set[UUID]:
        """Which of these topics the metadata says were deleted. `SessionLost` while it cannot be asked."""
        paths = [DeletedTopic.path_of(topic_id) for topic_id in topic_ids]
        if not paths:
            return set()
        await self._store.sync()  # the image may be ahead of what this session sees
        nodes = await self._store.get_many(paths)
        return {topic_id for topic_id, node in zip(topic_ids, nodes, strict=True) if node is not None}

    def confirm(self, topic_ids: Iterable[UUID]) -> None:
        """This broker has no files of these topics any more, durably; `run` writes that down soon."""
        self._gone.update(dict.fromkeys(topic_ids))
        if self._gone:
            self._is_due.set()

    async def run(self) -> None:
        """Writes down what was confirmed, all that came meanwhile together; what fails is left to the next start."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            gone, self._gone = list(self._gone), {}
            try:
                await self._forget(gone, is_for_all=False)
            except BarnabasError as error:
                logger.warning("cannot forget %d deleted topics before the next start: %s", len(gone), error)

    async def _forget(self, topic_ids: Sequence[UUID], *, is_for_all: bool) -> None:
        for start in range(0, len(topic_ids), _TOGETHER_MAX):
            together = topic_ids[start : start + _TOGETHER_MAX]
            for _ in range(_ATTEMPTS_MAX):
                nodes = await self._store.get_many([DeletedTopic.path_of(topic_id) for topic_id in together])
                operations = [
                    self._without_me(_decoded(topic_id, node), node.stat.version, is_for_all=is_for_all)
                    for topic_id, node in zip(together, nodes, strict=True)
                    if node is not None
                ]
                try:
                    if operations:
                        await self._store.multi(operations)
                    break
                except (BadVersion, NoNode):  # another broker confirms, too
                    continue

    def _without_me(self, topic: DeletedTopic, version: int, *, is_for_all: bool) -> Operation:
        left = tuple(broker for broker in topic.brokers if broker != self._broker_id)
        if is_for_all or not left:
            return Delete(topic.path, version)
        return SetData(topic.path, replace(topic, brokers=left).encode(), version)


def _ids(names: Iterable[str]) -> Iterable[UUID]:
    for name in names:
        try:
            yield parse_uuid(name)
        except ValueError:
            logger.error("%s/%s is not a topic id and is ignored", DELETED_TOPICS, name)


def _decoded(topic_id: UUID, node: Node) -> DeletedTopic:
    """The path alone says that the topic was deleted, so damaged data does not matter much."""
    try:
        return DeletedTopic.decode(topic_id, node.data)
    except CorruptNode as error:
        logger.error("the name of a deleted topic cannot be read: %s", error)
        return DeletedTopic("", topic_id, ())
