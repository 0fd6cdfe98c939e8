"""The nodes that brokers and topics are made of: for each its path, what it means, and its bytes. Pure.

Layout and JSON are those of Apache Kafka 3.9, the last one with ZooKeeper:

```
/cluster/id                                    ClusterId
/controller                    ephemeral       ControllerNode
/controller_epoch                              ControllerEpoch
/brokers/ids/N                 ephemeral       BrokerRegistration; its czxid is the broker epoch
/brokers/seqid                                 its version gives broker ids
/brokers/topics/T                              TopicAssignment
/brokers/topics/T/partitions/P/state           PartitionState; its version is the partition epoch
/config/topics/T, /config/brokers/N|<default>  configs (`encode_configs`); also users, clients, ips
/latest_producer_id_block                      ProducerIdBlock
```
Administration and notifications are in `znodes_admin`; `/barnabas` has what Kafka does not know (`deletions`).

A node that Kafka wrote is read, and Kafka reads what is written here. Data that is neither raises `CorruptNode`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote
from uuid import UUID

from barnabas.base.addresses import address_text
from barnabas.base.uuid import parse_uuid, uuid_text
from barnabas.metadata.errors import CorruptNode
from barnabas.metadata.json_node import JsonObject, decode_json, encode_json

BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
CONFIG_TOPICS: Final = "/config/topics"
CONFIG_BROKERS: Final = "/config/brokers"
CONFIG_CLIENTS: Final = "/config/clients"
CONFIG_USERS: Final = "/config/users"
CONFIG_IPS: Final = "/config/ips"
DELETED_TOPICS: Final = "/barnabas/deleted_topics"
DEFAULT_ENTITY: Final = "<default>"

NO_LEADER: Final = -1
PRODUCER_ID_BLOCK_SIZE: Final = 1000

_ENDPOINT: Final = re.compile(r"(?P<listener>[^:/]+)://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:]*)):(?P<port>\d+)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that a broker advertises on one of its listeners."""

    listener: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{address_text(self.host, self.port)}"


@dataclass(frozen=True, slots=True)
class VersionRange:
    """What a broker supports of a feature."""

    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """`/brokers/ids/N`, version 5."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    jmx_port: int = -1
    timestamp_ms: int = 0
    features: Mapping[str, VersionRange] = field(default_factory=dict)

    @staticmethod
    def path_of(broker_id: int) -> str:
        return f"{BROKER_IDS}/{broker_id}"

    @property
    def path(self) -> str:
        return self.path_of(self.broker_id)

    def encode(self) -> bytes:
        # Host and port on their own are for old clients, which know no listeners.
        plain = next((one for one in self.endpoints if one.security_protocol == "PLAINTEXT"), None)
        fields: dict[str, object] = {
            "version": 5,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "jmx_port": self.jmx_port,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [str(endpoint) for endpoint in self.endpoints],
            "listener_security_protocol_map": {one.listener: one.security_protocol for one in self.endpoints},
            "features": {
                name: {"min_version": versions.min_version, "max_version": versions.max_version}
                for name, versions in self.features.items()
            },
        }
        if self.rack is not None:
            fields["rack"] = self.rack
        return encode_json(fields)

    @classmethod
    def decode(cls, broker_id: int, data: bytes) -> "BrokerRegistration":
        """Versions 2 to 5; in 2 and 3 a listener's name is its security protocol."""
        path = cls.path_of(broker_id)
        fields = decode_json(path, data)
        if fields.number("version") < 2:
            raise CorruptNode(path, f"registration version {fields.number('version')} is too old")
        protocols = fields.optional_object("listener_security_protocol_map")
        features = fields.optional_object("features")
        return cls(
            broker_id=broker_id,
            endpoints=tuple([_decode_endpoint(path, text, protocols) for text in fields.texts("endpoints")]),
            rack=fields.optional_text("rack"),
            jmx_port=fields.number("jmx_port"),
            timestamp_ms=fields.number_in_text("timestamp"),
            features={name: _decode_versions(features.object(name)) for name in features.fields},
        )


def _decode_endpoint(path: str, text: str, protocols: JsonObject) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise CorruptNode(path, f"not an endpoint: {text[:80]!r}")
    listener = match["listener"]
    return Endpoint(
        listener=listener,
        security_protocol=protocols.optional_text(listener) or listener,
        host=match["host"] if match["v6"] is None else match["v6"],
        port=int(match["port"]),
    )


def _decode_versions(fields: JsonObject) -> VersionRange:
    return VersionRange(fields.number("min_version"), fields.number("max_version"))


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """Which brokers hold a partition. During a reassignment `replicas` has old and new ones."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """`/brokers/topics/T`, version 3: the topic's id and, by partition number, its replicas."""

    topic: str
    topic_id: UUID
    partitions: tuple[ReplicaAssignment, ...]

    @staticmethod
    def path_of(topic: str) -> str:
        return f"{TOPICS}/{topic}"

    @staticmethod
    def partitions_path_of(topic: str) -> str:
        return f"{TOPICS}/{topic}/partitions"

    @property
    def path(self) -> str:
        return self.path_of(self.topic)

    def encode(self) -> bytes:
        numbered = list(enumerate(self.partitions))
        return encode_json(
            {
                "version": 3,
                "topic_id": uuid_text(self.topic_id),
                "partitions": {str(number): one.replicas for number, one in numbered},
                "adding_replicas": {str(number): one.adding for number, one in numbered if one.adding},
                "removing_replicas": {str(number): one.removing for number, one in numbered if one.removing},
            }
        )

    @classmethod
    def decode(cls, topic: str, data: bytes) -> "TopicAssignment":
        """Partitions must be numbered from 0 without a gap, and the topic must have an id (Kafka 2.8 and later)."""
        path = cls.path_of(topic)
        fields = decode_json(path, data)
        partitions = fields.object("partitions")
        adding = fields.optional_object("adding_replicas")
        removing = fields.optional_object("removing_replicas")
        names = [str(number) for number in range(len(partitions.fields))]
        for name in names:
            if name not in partitions.fields:
                raise CorruptNode(path, f"partition {name} of {len(names)} is missing")
        try:
            topic_id = parse_uuid(fields.text("topic_id"))
        except ValueError as error:
            raise CorruptNode(path, str(error)) from None
        alike: dict[tuple[int, ...], ReplicaAssignment] = {}  # ten thousand partitions have few different ones
        assignments = []
        for name in names:
            replicas = partitions.numbers(name)
            if name in adding.fields or name in removing.fields:
                assignment = ReplicaAssignment(
                    replicas,
                    adding.numbers(name) if name in adding.fields else (),
                    removing.numbers(name) if name in removing.fields else (),
                )
            else:
                assignment = alike.get(replicas) or alike.setdefault(replicas, ReplicaAssignment(replicas))
            assignments.append(assignment)
        return cls(topic, topic_id, tuple(assignments))


@dataclass(frozen=True, slots=True)
class PartitionState:
    """`/brokers/topics/T/partitions/P/state`, version 1."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    is_recovering: bool = False
    """Elected from outside of the ISR, and not yet caught up with what that means."""

    @staticmethod
    def path_of(topic: str, partition: int) -> str:
        return f"{TOPICS}/{topic}/partitions/{partition}/state"

    def encode(self) -> bytes:
        fields: dict[str, object] = {
            "version": 1,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "controller_epoch": self.controller_epoch,
            "isr": self.isr,
        }
        if self.is_recovering:
            fields["leader_recovery_state"] = 1
        return encode_json(fields)

    @classmethod
    def decode(cls, path: str, data: bytes) -> "PartitionState":
        fields = decode_json(path, data)
        return cls(
            leader=fields.number("leader"),
            leader_epoch=fields.number("leader_epoch"),
            isr=fields.numbers("isr"),
            controller_epoch=fields.number("controller_epoch"),
            is_recovering=fields.fields.get("leader_recovery_state", 0) != 0,
        )


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """`/controller`, version 2."""

    broker_id: int
    timestamp_ms: int

    def encode(self) -> bytes:
        return encode_json(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": -1,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> "ControllerNode":
        fields = decode_json(CONTROLLER, data)
        return cls(fields.number("brokerid"), fields.number_in_text("timestamp"))


class ControllerEpoch:
    """`/controller_epoch`: a number in digits."""

    @staticmethod
    def encode(epoch: int) -> bytes:
        return str(epoch).encode()

    @staticmethod
    def decode(data: bytes) -> int:
        if not data.isdigit():
            raise CorruptNode(CONTROLLER_EPOCH, f"not a number: {data[:80]!r}")
        return int(data)


class ClusterId:
    """`/cluster/id`, version "1" (a text, in this one node)."""

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        return encode_json({"version": "1", "id": cluster_id})

    @staticmethod
    def decode(data: bytes) -> str:
        return decode_json(CLUSTER_ID, data).text("id")


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """`/latest_producer_id_block`, version 1: the last block that was given out, both ends included."""

    broker_id: int
    first: int
    last: int

    def encode(self) -> bytes:
        return encode_json(
            {"version": 1, "broker": self.broker_id, "block_start": str(self.first), "block_end": str(self.last)}
        )

    @classmethod
    def decode(cls, data: bytes) -> "ProducerIdBlock":
        fields = decode_json(PRODUCER_ID_BLOCK, data)
        return cls(fields.number("broker"), fields.number_in_text("block_start"), fields.number_in_text("block_end"))


def topic_config_path(topic: str) -> str:
    return f"{CONFIG_TOPICS}/{topic}"


def broker_config_path(broker_id: int | None) -> str:
    """None is the default for all brokers."""
    return f"{CONFIG_BROKERS}/{DEFAULT_ENTITY if broker_id is None else broker_id}"


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return encode_json({"version": 1, "config": dict(configs)})


def decode_configs(path: str, data: bytes) -> dict[str, str]:
    if not data:
        return {}
    configs = decode_json(path, data).optional_object("config")
    return {name: configs.text(name) for name in configs.fields}


def sanitize(name: str) -> str:
    """A user or client id as a part of a path."""
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    return unquote(name)


PERSISTENT_PATHS: Final = (
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE,
    CONFIG_TOPICS,
    CONFIG_BROKERS,
    CONFIG_CLIENTS,
    CONFIG_USERS,
    CONFIG_IPS,
    PRODUCER_ID_BLOCK,
    "/cluster",
    "/consumers",
    "/config/changes",
    "/admin/delete_topics",
    "/isr_change_notification",
    "/log_dir_event_notification",
    DELETED_TOPICS,
)
"""Must be there before a broker starts."""
