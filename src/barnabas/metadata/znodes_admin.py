"""The nodes of administration and notification: for each its path, what it means, and its bytes. Pure.

```
/admin/delete_topics/T                   an empty node: the topic is marked for deletion
/admin/reassign_partitions               Reassignments
/config/changes/config_change_N          ConfigChange
/isr_change_notification/isr_change_N    IsrChange
/log_dir_event_notification/log_dir_event_N   LogDirectoryFailure
/feature                                 FinalizedFeatures
```

Of these Barnabas reads and writes `/admin/delete_topics` alone. The others are Kafka's, and known here so that a tree
that Kafka wrote can be read; docs/zookeeper-layout.md says what Barnabas does instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from barnabas.base.ids import TopicPartition
from barnabas.metadata.errors import CorruptNode
from barnabas.metadata.json_node import JsonObject, decode_json, encode_json

DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
CONFIG_CHANGES: Final = "/config/changes"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIRECTORY_EVENTS: Final = "/log_dir_event_notification"
FEATURE: Final = "/feature"

_LOG_DIRECTORY_FAILED: Final = 1


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


@dataclass(frozen=True, slots=True)
class Reassignments:
    """`/admin/reassign_partitions`, version 1: where partitions shall go."""

    targets: Mapping[TopicPartition, tuple[int, ...]]

    def encode(self) -> bytes:
        return encode_json(
            {
                "version": 1,
                "partitions": [
                    {"topic": partition.topic, "partition": partition.partition, "replicas": replicas}
                    for partition, replicas in self.targets.items()
                ],
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> "Reassignments":
        items = decode_json(REASSIGN_PARTITIONS, data).objects("partitions")
        return cls({_decode_partition(item): item.numbers("replicas") for item in items})


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """`/config/changes/config_change_N`, version 2: whose configs changed, as a path below `/config`."""

    PREFIX: ClassVar = f"{CONFIG_CHANGES}/config_change_"

    entity_path: str

    def encode(self) -> bytes:
        return encode_json({"version": 2, "entity_path": self.entity_path})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "ConfigChange":
        return cls(decode_json(path, data).text("entity_path"))


@dataclass(frozen=True, slots=True)
class IsrChange:
    """`/isr_change_notification/isr_change_N`, version 1: partitions whose state their leader has written."""

    PREFIX: ClassVar = f"{ISR_CHANGES}/isr_change_"

    partitions: tuple[TopicPartition, ...]

    def encode(self) -> bytes:
        partitions = [{"topic": one.topic, "partition": one.partition} for one in self.partitions]
        return encode_json({"version": 1, "partitions": partitions})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "IsrChange":
        return cls(tuple([_decode_partition(item) for item in decode_json(path, data).objects("partitions")]))


@dataclass(frozen=True, slots=True)
class LogDirectoryFailure:
    """`/log_dir_event_notification/log_dir_event_N`, version 1: this broker lost a log directory."""

    PREFIX: ClassVar = f"{LOG_DIRECTORY_EVENTS}/log_dir_event_"

    broker_id: int

    def encode(self) -> bytes:
        return encode_json({"version": 1, "broker": self.broker_id, "event": _LOG_DIRECTORY_FAILED})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "LogDirectoryFailure":
        return cls(decode_json(path, data).number("broker"))


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """`/feature`, version 2 (version 1 is read, too): the levels that the whole cluster has agreed on."""

    is_enabled: bool
    levels: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        features = {name: {"max_version_level": level} for name, level in self.levels.items()}
        return encode_json({"version": 2, "status": int(self.is_enabled), "features": features})

    @classmethod
    def decode(cls, data: bytes) -> "FinalizedFeatures":
        fields = decode_json(FEATURE, data)
        status = fields.number("status")
        if status not in (0, 1):
            raise CorruptNode(FEATURE, f"status {status} is neither 0 nor 1")
        features = fields.object("features")
        return cls(status == 1, {name: features.object(name).number("max_version_level") for name in features.fields})


def _decode_partition(fields: JsonObject) -> TopicPartition:
    return TopicPartition(fields.text("topic"), fields.number("partition"))
