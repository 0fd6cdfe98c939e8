"""The topics of a Kafka cluster, from the records of its own metadata log. Pure.

Kafka without ZooKeeper (KRaft) keeps everything about a cluster in the log `__cluster_metadata-0`, as records:

```
bytes              field of a record's value
unsigned varint    frame version, 1
unsigned varint    kind of record
unsigned varint    version of this kind
...                its fields, then tagged fields
```

`KraftMetadata.replay` takes the values in order, first those of a snapshot. Only what Barnabas takes over is read:
topics, their partitions and settings, and producer ids. Records between the begin and the end of a metadata transaction
count when it ends.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from barnabas.base.buffers import Buffer
from barnabas.base.errors import BarnabasError
from barnabas.wire.primitives import (
    INT32,
    INT64,
    UNREADABLE,
    read_count,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    read_unsigned_varint,
    read_uuid,
)

UNASSIGNED_DIRECTORY: Final = UUID(int=0)

_FRAME_VERSION: Final = 1
_TOPIC: Final = 2
_PARTITION: Final = 3
_CONFIG: Final = 4
_PARTITION_CHANGE: Final = 5
_REMOVE_TOPIC: Final = 9
_PRODUCER_IDS: Final = 15
_BEGIN_TRANSACTION: Final = 23
_END_TRANSACTION: Final = 24
_ABORT_TRANSACTION: Final = 25
_VERSION_MAX: Final = {_PARTITION: 2, _PARTITION_CHANGE: 2}
"""Of the other kinds that are read there is a version 0 alone."""

_DIRECTORIES_FROM: Final = 1
_NO_CHANGE: Final = -2
_LEADER_TAG: Final = 1
_REPLICAS_TAG: Final = 2
_DIRECTORIES_TAG: Final = 8
_TOPIC_RESOURCE: Final = 2


class UnreadableKraftRecord(BarnabasError):  # noqa: N818 - a fact about bytes, named as one
    """A record of Kafka's metadata log that this Barnabas cannot read; the message says why."""


@dataclass(frozen=True, slots=True)
class KraftPartition:
    replicas: tuple[int, ...]
    leader_epoch: int
    directories: tuple[UUID, ...]
    """The log directory of each replica, in their order; empty where an older Kafka has not noted it."""

    def directory_of(self, node_id: int) -> UUID:
        of_replica = dict(zip(self.replicas, self.directories, strict=False))
        return of_replica.get(node_id, UNASSIGNED_DIRECTORY)


@dataclass(frozen=True, slots=True)
class KraftTopic:
    name: str
    id: UUID
    partitions: dict[int, KraftPartition] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)


class KraftMetadata:
    """What the records that were replayed say."""

    def __init__(self) -> None:
        self.topics: dict[str, KraftTopic] = {}
        self.next_producer_id = 0
        self._names: dict[UUID, str] = {}
        self._configs: dict[str, dict[str, str]] = {}
        """By topic; also of topics that are yet to come: the order of the two kinds of records is not said anywhere."""
        self._transaction: list[Buffer] | None = None
        """Records that wait for the end of their transaction."""

    def replay(self, value: Buffer) -> None:
        """Raises `UnreadableKraftRecord` when the value is none, or when a newer Kafka has written it."""
        try:
            self._replay(value)
        except (*UNREADABLE, KeyError) as problem:
            raise UnreadableKraftRecord(f"a record of Kafka's metadata log cannot be read: {problem!r}") from problem

    def _replay(self, value: Buffer) -> None:
        frame_version, at = read_unsigned_varint(value, 0)
        kind, at = read_unsigned_varint(value, at)
        version, at = read_unsigned_varint(value, at)
        if frame_version != _FRAME_VERSION:
            raise UnreadableKraftRecord(f"Kafka's metadata log has frames of version {frame_version}, not 1")
        if kind == _BEGIN_TRANSACTION:
            self._transaction = []
        elif kind in (_END_TRANSACTION, _ABORT_TRANSACTION):
            records, self._transaction = self._transaction, None
            for record in (records or ()) if kind == _END_TRANSACTION else ():
                self._replay(record)
        elif self._transaction is not None:
            self._transaction.append(value)
        elif kind in _READERS:
            if version > _VERSION_MAX.get(kind, 0):
                raise UnreadableKraftRecord(
                    f"the metadata log was written by a newer Kafka: records of kind {kind} have version {version}"
                )
            _READERS[kind](self, value, at, version)

    # -- the kinds -----------------------------------------------------------------------------------------------

    def _topic(self, value: Buffer, at: int, version: int) -> None:
        name, at = read_string(value, at, True)
        topic_id, at = read_uuid(value, at)
        self.topics[name] = KraftTopic(name, topic_id, configs=self._configs.setdefault(name, {}))
        self._names[topic_id] = name

    def _partition(self, value: Buffer, at: int, version: int) -> None:
        (index,), at = INT32.unpack_from(value, at), at + INT32.size
        topic_id, at = read_uuid(value, at)
        replicas, at = _read_int32s(value, at)
        for _ in ("isr", "removing replicas", "adding replicas"):
            _, at = _read_int32s(value, at)
        at += INT32.size  # the leader
        (leader_epoch,) = INT32.unpack_from(value, at)
        at += 2 * INT32.size  # that, and the partition's epoch
        directories = _read_uuids(value, at)[0] if version >= _DIRECTORIES_FROM else ()
        self.topics[self._names[topic_id]].partitions[index] = KraftPartition(replicas, leader_epoch, directories)

    def _partition_change(self, value: Buffer, at: int, version: int) -> None:
        (index,), at = INT32.unpack_from(value, at), at + INT32.size
        topic_id, at = read_uuid(value, at)
        fields, _ = read_tagged_fields(value, at)
        partitions = self.topics[self._names[topic_id]].partitions
        changed = partitions[index]
        if _LEADER_TAG in fields and INT32.unpack_from(fields[_LEADER_TAG])[0] != _NO_CHANGE:
            changed = replace(changed, leader_epoch=changed.leader_epoch + 1)
        if _REPLICAS_TAG in fields:
            changed = replace(changed, replicas=_read_int32s(fields[_REPLICAS_TAG], 0)[0])
        if _DIRECTORIES_TAG in fields:
            changed = replace(changed, directories=_read_uuids(fields[_DIRECTORIES_TAG], 0)[0])
        partitions[index] = changed

    def _config(self, value: Buffer, at: int, version: int) -> None:
        resource_type = value[at]
        resource, at = read_string(value, at + 1, True)
        name, at = read_string(value, at, True)
        text, at = read_nullable_string(value, at, True)
        if resource_type != _TOPIC_RESOURCE:
            return
        configs = self._configs.setdefault(resource, {})
        if text is None:
            configs.pop(name, None)
        else:
            configs[name] = text

    def _remove_topic(self, value: Buffer, at: int, version: int) -> None:
        topic_id, _ = read_uuid(value, at)
        name = self._names.pop(topic_id)
        if self.topics[name].id == topic_id:
            del self.topics[name]
            self._configs.pop(name, None)

    def _producer_ids(self, value: Buffer, at: int, version: int) -> None:
        (self.next_producer_id,) = INT64.unpack_from(value, at + INT32.size + INT64.size)


_READERS: Final[Mapping[int, Callable[[KraftMetadata, Buffer, int, int], None]]] = {
    _TOPIC: KraftMetadata._topic,
    _PARTITION: KraftMetadata._partition,
    _CONFIG: KraftMetadata._config,
    _PARTITION_CHANGE: KraftMetadata._partition_change,
    _REMOVE_TOPIC: KraftMetadata._remove_topic,
    _PRODUCER_IDS: KraftMetadata._producer_ids,
}


def _read_int32s(value: Buffer, at: int) -> tuple[tuple[int, ...], int]:
    count, at = read_count(value, at, True)
    end = at + count * INT32.size
    if end > len(value):
        raise ValueError(f"{count} numbers, but {len(value) - at} bytes are left")
    return tuple([INT32.unpack_from(value, at)[0] for at in range(at, end, INT32.size)]), end


def _read_uuids(value: Buffer, at: int) -> tuple[tuple[UUID, ...], int]:
    count, at = read_count(value, at, True)
    identifiers = []
    for _ in range(count):
        identifier, at = read_uuid(value, at)
        identifiers.append(identifier)
    return tuple(identifiers), at
