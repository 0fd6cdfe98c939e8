"""The nodes that a cluster and its topics are made of: for each its path, what it means, and its bytes. Pure.

Layout and JSON are those of Apache Kafka 3.9, the last one with ZooKeeper:

```
/cluster/id                                    ClusterId
/controller                    ephemeral       ControllerNode
/controller_epoch                              ControllerEpoch
/brokers/ids/N                 ephemeral       BrokerRegistration (`znodes_brokers`); its czxid is the broker epoch
/brokers/seqid                                 its version gives broker ids
/brokers/topics/T                              TopicAssignment
/brokers/topics/T/partitions/P/state           PartitionState; its version is the partition epoch
/config/…                                      configs, quotas, credentials (`znodes_configs`)
/latest_producer_id_block                      ProducerIdBlock
```
Administration and notifications are in `znodes_admin`, access rules in `znodes_acls`; `/barnabas` has what Kafka does
not know (`deletions`). docs/zookeeper-layout.md shows every path with an example.

A node that Kafka wrote is read, and Kafka reads what is written here. Fields of ours are in an object `barnabas` of
their own, which Kafka skips; they are written only where they say something, and a node without them is read, too. Data
that is neither raises `CorruptNode`.
"""

from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from barnabas.base.uuid import parse_uuid, uuid_text
from barnabas.metadata.errors import CorruptNode
from barnabas.metadata.json_node import JsonObject, decode_json, encode_json
from barnabas.metadata.znodes_brokers import (
    BARNABAS,
    BARNABAS_VERSIONS,
    BROKER_IDS,
    BrokerRegistration,
    Endpoint,
    VersionRange,
)
from barnabas.metadata.znodes_configs import (
    CONFIG_BROKERS,
    CONFIG_CLIENTS,
    CONFIG_IPS,
    CONFIG_TOPICS,
    CONFIG_USERS,
    DEFAULT_ENTITY,
    broker_config_path,
    decode_configs,
    desanitize,
    encode_configs,
    sanitize,
    topic_config_path,
)

# Names of the two modules above that others import from here.
__all__ = [
    "BARNABAS",
    "BARNABAS_VERSIONS",
    "BROKER_IDS",
    "CONFIG_BROKERS",
    "CONFIG_CLIENTS",
    "CONFIG_IPS",
    "CONFIG_TOPICS",
    "CONFIG_USERS",
    "DEFAULT_ENTITY",
    "BrokerRegistration",
    "Endpoint",
    "VersionRange",
    "broker_config_path",
    "decode_configs",
    "desanitize",
    "encode_configs",
    "sanitize",
    "topic_config_path",
]

BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
DELETED_TOPICS: Final = "/barnabas/deleted_topics"

NO_LEADER: Final = -1
PRODUCER_ID_BLOCK_SIZE: Final = 1000


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
    """`/brokers/topics/T/partitions/P/state`, version 1.

    The ELR (eligible leader replicas, KIP-966) are replicas that left the ISR when it fell below the minimum: each has
    every committed record unless it lost data since. A replica is offline in a registration when the log directory that
    it lies in has failed there. What Kafka does not know is in `barnabas`:

    ```
    "barnabas": {"isr_epochs": ["21", "15"], "elr": [3], "elr_epochs": ["9"], "min_insync_replicas": 3,
                 "offline": [4], "offline_epochs": ["17"]}
    ```
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    is_recovering: bool = False
    """Elected from outside of the ISR, and not yet caught up with what that means."""
    isr_epochs: tuple[int, ...] = ()
    """The broker epoch in which each member of the ISR is in sync, in the ISR's order. Empty in a state that Kafka
    wrote, or a broker alone: it proves nothing about any registration."""
    elr: tuple[int, ...] = ()
    elr_epochs: tuple[int, ...] = ()
    """The broker epoch that each member of the ELR had when it was last in sync, in the ELR's order."""
    min_insync_replicas: int | None = None
    """The minimum that leaders and the ELR go by, whatever the topic's config says meanwhile. None: nobody wrote it."""
    offline: tuple[int, ...] = ()
    offline_epochs: tuple[int, ...] = ()
    """The broker epoch in which each of the offline replicas failed, in their order."""

    @staticmethod
    def path_of(topic: str, partition: int) -> str:
        return f"{TOPICS}/{topic}/partitions/{partition}/state"

    def broker_epoch_of(self, broker_id: int) -> int | None:
        """Of a member of ISR or ELR; None for anyone else, and where no epochs are written."""
        for members, epochs in ((self.isr, self.isr_epochs), (self.elr, self.elr_epochs)):
            if epochs and broker_id in members:
                return epochs[members.index(broker_id)]
        return None

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
        if additions := self._additions():
            fields[BARNABAS] = additions
        return encode_json(fields)

    def _additions(self) -> dict[str, object]:
        additions: dict[str, object] = {}
        if self.isr_epochs:
            additions["isr_epochs"] = list(map(str, self.isr_epochs))
        if self.elr:
            additions["elr"] = self.elr
            additions["elr_epochs"] = list(map(str, self.elr_epochs))
        if self.min_insync_replicas is not None:
            additions["min_insync_replicas"] = self.min_insync_replicas
        if self.offline:
            additions["offline"] = self.offline
            additions["offline_epochs"] = list(map(str, self.offline_epochs))
        problem = _additions_problem(self)
        assert problem is None, problem
        return additions

    @classmethod
    def decode(cls, path: str, data: bytes) -> "PartitionState":
        fields = decode_json(path, data)
        state = cls(
            leader=fields.number("leader"),
            leader_epoch=fields.number("leader_epoch"),
            isr=fields.numbers("isr"),
            controller_epoch=fields.number("controller_epoch"),
            is_recovering=fields.fields.get("leader_recovery_state", 0) != 0,
        )
        return state._with_additions(fields.object(BARNABAS)) if BARNABAS in fields.fields else state

    def _with_additions(self, additions: JsonObject) -> "PartitionState":
        has = additions.fields
        state = replace(
            self,
            isr_epochs=_decode_epochs(additions, "isr_epochs") if "isr_epochs" in has else (),
            elr=additions.numbers("elr") if "elr" in has else (),
            elr_epochs=_decode_epochs(additions, "elr_epochs") if "elr_epochs" in has else (),
            min_insync_replicas=additions.number("min_insync_replicas") if "min_insync_replicas" in has else None,
            offline=additions.numbers("offline") if "offline" in has else (),
            offline_epochs=_decode_epochs(additions, "offline_epochs") if "offline_epochs" in has else (),
        )
        if problem := _additions_problem(state):
            raise CorruptNode(additions.path, problem)
        return state


def _additions_problem(state: PartitionState) -> str | None:
    """What is wrong with our additions. A wrong ELR is worse than none, so nothing is guessed."""
    if state.isr_epochs and len(state.isr_epochs) != len(state.isr):
        return f"{len(state.isr)} in-sync replicas have {len(state.isr_epochs)} broker epochs"
    if len(state.elr_epochs) != len(state.elr):
        return f"{len(state.elr)} eligible replicas have {len(state.elr_epochs)} broker epochs"
    if state.elr and state.isr and not state.isr_epochs:
        return "eligible replicas beside in-sync replicas without broker epochs"
    if state.elr and len({*state.isr, *state.elr}) != len(state.isr) + len(state.elr):
        return f"eligible replicas {state.elr} repeat, or are in sync: {state.isr}"
    if state.min_insync_replicas is not None and state.min_insync_replicas < 1:
        return f"a minimum of {state.min_insync_replicas} in-sync replicas"
    if len(state.offline_epochs) != len(state.offline):
        return f"{len(state.offline)} offline replicas have {len(state.offline_epochs)} broker epochs"
    return None


def _decode_epochs(additions: JsonObject, name: str) -> tuple[int, ...]:
    try:
        return tuple([int(text) for text in additions.texts(name)])
    except ValueError:
        raise CorruptNode(additions.path, f"{name} are not numbers: {additions.fields[name]!r:.80}") from None


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
