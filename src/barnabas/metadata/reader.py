"""Reads the parts of the cluster that may have changed, and leaves a watch on everything it reads.

The input is the paths whose watches fired; the roots alone (`ROOT_PATHS`) mean everything. Reading and watching are one
step of the store, so what changes after the read fires again: an image built from these changes can be late, but never
stays wrong. It is not a snapshot: what one `multi` wrote may be seen in two steps when the store is remote.

A topic that is marked for deletion counts as gone. Data that cannot be decoded is logged, and what it describes
counts as missing. A path that does not exist yet is watched for its creation only where nothing else would
tell: states of partitions, and the roots.

A topic may have ten thousand partitions, and there may be as many topics: after every few dozen the event loop serves
others.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from barnabas.base.ids import TopicPartition
from barnabas.base.pausing import in_slices
from barnabas.metadata.errors import CorruptNode, NoNode
from barnabas.metadata.image import (
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    Change,
    ClusterImage,
    ControllerChanged,
    Partition,
    PartitionsChanged,
    RegisteredBroker,
    Topic,
    TopicChanged,
    TopicConfigsChanged,
    TopicRemoved,
)
from barnabas.metadata.paths import name_of, parent_of
from barnabas.metadata.store import MetadataStore, Node, Watch
from barnabas.metadata.znodes import (
    BROKER_IDS,
    CONFIG_BROKERS,
    CONFIG_TOPICS,
    CONTROLLER,
    DEFAULT_ENTITY,
    TOPICS,
    BrokerRegistration,
    ControllerNode,
    PartitionState,
    TopicAssignment,
    decode_configs,
)
from barnabas.metadata.znodes_admin import DELETE_TOPICS

_log: Final = logging.getLogger(__name__)

_LISTS: Final = (BROKER_IDS, TOPICS, CONFIG_TOPICS, CONFIG_BROKERS)
ROOT_PATHS: Final = (CONTROLLER, DELETE_TOPICS, *_LISTS)

_READS_TOGETHER_MAX: Final = 64

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(slots=True)
class _Due:
    """Paths, sorted by what they are about."""

    lists: set[str] = field(default_factory=set)
    names: dict[str, set[str]] = field(default_factory=lambda: {path: set() for path in _LISTS})
    states: dict[TopicPartition, None] = field(default_factory=dict)
    controller: bool = False

    def add(self, path: str) -> None:
        if path == CONTROLLER:
            self.controller = True
        elif path == DELETE_TOPICS:
            self.lists.add(TOPICS)
        elif path in self.names:
            self.lists.add(path)
        elif (parent := parent_of(path)) in self.names:
            self.names[parent].add(name_of(path))
        else:
            # /brokers/topics/T/partitions/P/state
            parts = path.split("/")
            self.states[TopicPartition(parts[3], int(parts[5]))] = None

    def has(self, parent: str) -> bool:
        """Whether a list, or one of its children, is due."""
        return parent in self.lists or bool(self.names[parent])


class ClusterReader:
    def __init__(self, store: MetadataStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch
        self._known: dict[str, set[str]] = {}
        self.forget()

    def forget(self) -> None:
        """After a new session no watch is left, so everything will be read again."""
        self._known = {path: set() for path in _LISTS}

    async def read(self, image: ClusterImage, paths: Collection[str]) -> list[Change]:
        """The differences from the image, in the places that these paths concern."""
        due = _Due()
        async for together in in_slices(paths, _READS_TOGETHER_MAX):
            for path in together:
                due.add(path)
        changes: list[Change] = []
        if TOPICS in due.lists:  # a new topic comes with its configs: the watch of these may fire later
            due.lists.add(CONFIG_TOPICS)
        if due.controller:
            changes.append(await self._read_controller())
        if due.has(BROKER_IDS):
            changes += await self._read_brokers(image, due)
        if due.has(TOPICS):
            changes += await self._read_topics(image, due)
        elif due.states:
            changes += await self._read_changed(image, due.states)
        if due.has(CONFIG_TOPICS):
            changes += await self._read_topic_configs(image, due)
        if due.has(CONFIG_BROKERS):
            changes += await self._read_broker_configs(image, due)
        return changes

    async def _read_controller(self) -> ControllerChanged:
        while await self._store.exists(CONTROLLER, self._watch) is not None:
            [node] = await self._store.get_many([CONTROLLER])
            if node is not None:
                controller = _decoded(lambda _path, data: ControllerNode.decode(data), CONTROLLER, node)
                return ControllerChanged(None if controller is None else controller.broker_id)
        return ControllerChanged(None)

    async def _read_brokers(self, image: ClusterImage, due: _Due) -> list[Change]:
        names, gone = await self._names_due(due, BROKER_IDS, map(str, image.brokers))
        changes: list[Change] = [BrokerRemoved(int(name)) for name in gone]
        async for name, node in self._get_named(BROKER_IDS, filter(str.isdigit, names)):
            registration = _decoded(BrokerRegistration.decode, int(name), node)
            if node is None or registration is None:
                changes.append(BrokerRemoved(int(name)))
            else:
                changes.append(BrokerChanged(RegisteredBroker.of(registration, node.stat.czxid)))
        return changes

    async def _read_topics(self, image: ClusterImage, due: _Due) -> list[Change]:
        names, gone = await self._names_due(due, TOPICS, image.topics)
        changes: list[Change] = [TopicRemoved(name) for name in gone]
        assignments: dict[str, TopicAssignment] = {}
        async for name, node in self._get_named(TOPICS, names):
            assignment = _decoded(TopicAssignment.decode, name, node)
            if assignment is None:
                changes.append(TopicRemoved(name))
            else:
                assignments[name] = assignment
        changes += await self._read_new(assignments)
        read_anew = set(names)
        changes += await self._read_changed(image, [one for one in due.states if one.topic not in read_anew])
        return changes

    async def _read_new(self, assignments: Mapping[str, TopicAssignment]) -> list[Change]:
        """Topics of which only the replica assignment is known."""
        partitions: dict[str, list[Partition]] = {name: [] for name in assignments}
        wanted = (
            TopicPartition(name, index)
            for name, assignment in assignments.items()
            for index in range(len(assignment.partitions))
        )
        async for (name, index), state, version in self._get_states(wanted):
            assignment = assignments[name].partitions[index]
            partitions[name].append(Partition.of(index, assignment, state, version))
        return [
            TopicChanged(Topic(name, assignment.topic_id, tuple(partitions[name])))
            for name, assignment in assignments.items()
        ]

    async def _read_changed(self, image: ClusterImage, states: Iterable[TopicPartition]) -> list[Change]:
        """Partitions whose states have changed, of topics that are there."""
        partitions: dict[str, list[Partition]] = {}
        known = self._known[TOPICS]
        wanted = (one for one in states if one.topic in known and image.partition(*one) is not None)
        async for one, state, version in self._get_states(wanted):
            partition = image.topics[one.topic].partitions[one.partition]
            partitions.setdefault(one.topic, []).append(partition.with_state(state, version))
        return [PartitionsChanged(name, image.topics[name].id, tuple(changed)) for name, changed in partitions.items()]

    async def _get_states(
        self, wanted: Iterable[TopicPartition]
    ) -> AsyncIterator[tuple[TopicPartition, PartitionState | None, int]]:
        """With the version of each, -1 for one that is missing."""
        alike: dict[bytes, PartitionState] = {}  # thousands of partitions have few different states
        async for together in in_slices(wanted, _READS_TOGETHER_MAX):
            paths = [PartitionState.path_of(*one) for one in together]
            nodes = await self._store.get_many(paths, self._watch)
            for one, path, node in zip(together, paths, nodes, strict=True):
                if node is None:
                    node = await self._await_creation(path)
                state = None if node is None else alike.get(node.data)
                if node is not None and state is None and (state := _decoded(PartitionState.decode, path, node)):
                    alike[node.data] = state
                yield one, state, -1 if node is None else node.stat.version

    async def _await_creation(self, path: str) -> Node | None:
        """Leaves a watch where there is no node; the node, when it came meanwhile."""
        while await self._store.exists(path, self._watch) is not None:
            [node] = await self._store.get_many([path], self._watch)
            if node is not None:
                return node
        return None

    async def _read_topic_configs(self, image: ClusterImage, due: _Due) -> list[Change]:
        names, gone = await self._names_due(due, CONFIG_TOPICS, image.topic_configs)
        changes: list[Change] = [TopicConfigsChanged(name, {}) for name in gone]
        async for name, node in self._get_named(CONFIG_TOPICS, names):
            configs = _decoded(decode_configs, f"{CONFIG_TOPICS}/{name}", node)
            changes.append(TopicConfigsChanged(name, configs or {}))
        return changes

    async def _read_broker_configs(self, image: ClusterImage, due: _Due) -> list[Change]:
        known = [DEFAULT_ENTITY if broker_id is None else str(broker_id) for broker_id in image.broker_configs]
        names, gone = await self._names_due(due, CONFIG_BROKERS, known)
        changes: list[Change] = [BrokerConfigsChanged(_broker_id(name), {}) for name in gone]
        owners = [name for name in names if name == DEFAULT_ENTITY or name.isdigit()]
        async for name, node in self._get_named(CONFIG_BROKERS, owners):
            configs = _decoded(decode_configs, f"{CONFIG_BROKERS}/{name}", node)
            changes.append(BrokerConfigsChanged(_broker_id(name), configs or {}))
        return changes

    async def _names_due(self, due: _Due, parent: str, in_image: Iterable[str]) -> tuple[list[str], list[str]]:
        """The children of a list to read now, and those in the image that are gone."""
        known = self._known[parent]
        if parent not in due.lists:
            return sorted(due.names[parent] & known), []
        present = set(await self._list(parent))
        await asyncio.sleep(0)  # sorting ten thousand names takes a while
        if parent == TOPICS:
            present.difference_update(await self._list(DELETE_TOPICS))
        self._known[parent] = present
        return sorted((present - known) | (present & due.names[parent])), sorted(set(in_image) - present)

    async def _list(self, path: str) -> list[str]:
        while True:
            try:
                return await self._store.children(path, self._watch)
            except NoNode:
                if await self._store.exists(path, self._watch) is None:
                    return []

    async def _get_named(self, parent: str, names: Iterable[str]) -> AsyncIterator[tuple[str, Node | None]]:
        async for together in in_slices(names, _READS_TOGETHER_MAX):
            nodes = await self._store.get_many([f"{parent}/{name}" for name in together], self._watch)
            for name, node in zip(together, nodes, strict=True):
                if node is None:
                    self._known[parent].discard(name)
                yield name, node


def _broker_id(name: str) -> int | None:
    return None if name == DEFAULT_ENTITY else int(name)


def _decoded(decode: Callable[[_Key, bytes], _Value], key: _Key, node: Node | None) -> _Value | None:
    """None for a node that is missing or damaged."""
    if node is None:
        return None
    try:
        return decode(key, node.data)
    except CorruptNode as error:
        _log.error("a node of the metadata store cannot be read and is ignored: %s", error)
        return None
