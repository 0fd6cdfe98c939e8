"""Which of our classes reads which node, and what they write for the facts behind `tests.support.kafka_nodes`."""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from barnabas.base.uuid import parse_uuid
from barnabas.metadata.construction import CONSTRUCTION, ConstructionNode
from barnabas.metadata.deletions import DeletedTopic
from barnabas.metadata.session_keys import decode_session_key, encode_session_key, session_key_path
from barnabas.metadata.znodes import (
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    PRODUCER_ID_BLOCK,
    BrokerRegistration,
    ClusterId,
    ControllerEpoch,
    ControllerNode,
    Endpoint,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    broker_config_path,
    decode_configs,
    encode_configs,
    topic_config_path,
)
from barnabas.metadata.znodes_acls import (
    AccessRule,
    AclChange,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceAcls,
    ResourcePattern,
    ResourceType,
)
from barnabas.metadata.znodes_admin import (
    ConfigChange,
    FinalizedFeatures,
    IsrChange,
    LogDirectoryFailure,
    Reassignments,
    delete_topic_path,
)
from barnabas.metadata.znodes_configs import (
    DEFAULT,
    SCRAM_MECHANISMS,
    ClientEntity,
    ScramCredential,
    decode_quotas,
    encode_quota,
)

SALT = b"always the same"
PASSWORD = b"wonderland"


@dataclass(frozen=True, slots=True)
class NodeKind:
    """The nodes whose paths have this form, and a way through our classes: decoded, and encoded again."""

    form: str
    pattern: str
    read_and_write: Callable[[str, bytes], bytes]

    def matches(self, path: str) -> bool:
        return re.fullmatch(self.pattern, path) is not None


def _broker(path: str, data: bytes) -> bytes:
    registration = BrokerRegistration.decode(int(path.split("/")[3]), data)
    assert registration.path == path
    return registration.encode()


def _topic(path: str, data: bytes) -> bytes:
    topic = TopicAssignment.decode(path.split("/")[3], data)
    assert topic.path == path
    return topic.encode()


def _state(path: str, data: bytes) -> bytes:
    assert PartitionState.path_of(path.split("/")[3], int(path.split("/")[5])) == path
    return PartitionState.decode(path, data).encode()


def _configs(path: str, data: bytes) -> bytes:
    return encode_configs(decode_configs(path, data))


def _client_configs(path: str, data: bytes) -> bytes:
    """Quotas and credentials take the way through their own classes."""
    entity = ClientEntity.of_path(path)
    assert entity.path == path
    configs = decode_configs(path, data)
    if not data:  # a user of whom only client ids have quotas
        assert configs == {}
        return b""
    texts = {name: encode_quota(name, value) for name, value in decode_quotas(path, configs).items()}
    for mechanism in configs.keys() & SCRAM_MECHANISMS:
        texts[mechanism] = ScramCredential.decode(path, configs[mechanism]).encode()
    assert texts.keys() == configs.keys()
    return encode_configs(texts)


def _acls(path: str, data: bytes) -> bytes:
    acls = ResourceAcls.decode(ResourcePattern.of_path(path), data)
    assert acls.path == path
    return acls.encode()


def _acl_change(path: str, data: bytes) -> bytes:
    change = AclChange.decode(path, data)
    assert path.startswith(change.prefix)
    return change.encode()


def _deleted_topic(path: str, data: bytes) -> bytes:
    topic = DeletedTopic.decode(parse_uuid(path.split("/")[3]), data)
    assert topic.path == path
    return topic.encode()


def _session_key(path: str, data: bytes) -> bytes:
    assert session_key_path(int(path.split("/")[3])) == path
    return encode_session_key(decode_session_key(path, data))


def _nothing(path: str, data: bytes) -> bytes:
    assert data == b"", f"{path} should have no data"
    return b""


SERVED = [
    NodeKind("/brokers/ids/N", r"/brokers/ids/\d+", _broker),
    NodeKind("/brokers/seqid", r"/brokers/seqid", _nothing),
    NodeKind("/brokers/topics/T", r"/brokers/topics/[^/]+", _topic),
    NodeKind("/brokers/topics/T/partitions/P/state", r"/brokers/topics/[^/]+/partitions/\d+/state", _state),
    NodeKind("/controller", CONTROLLER, lambda _, data: ControllerNode.decode(data).encode()),
    NodeKind(
        "/controller_epoch", CONTROLLER_EPOCH, lambda _, data: ControllerEpoch.encode(ControllerEpoch.decode(data))
    ),
    NodeKind("/cluster/id", CLUSTER_ID, lambda _, data: ClusterId.encode(ClusterId.decode(data))),
    NodeKind("/latest_producer_id_block", PRODUCER_ID_BLOCK, lambda _, data: ProducerIdBlock.decode(data).encode()),
    NodeKind("/config/topics/T", r"/config/topics/[^/]+", _configs),
    NodeKind("/config/brokers/N", r"/config/brokers/[^/]+", _configs),
    NodeKind("/config/users/U", r"/config/users/[^/]+", _client_configs),
    NodeKind("/config/users/U/clients/C", r"/config/users/[^/]+/clients/[^/]+", _client_configs),
    NodeKind("/config/clients/C", r"/config/clients/[^/]+", _client_configs),
    NodeKind("/config/ips/A", r"/config/ips/[^/]+", _client_configs),
    NodeKind("/admin/delete_topics/T", r"/admin/delete_topics/[^/]+", _nothing),
    NodeKind("/kafka-acl/TYPE/NAME", r"/kafka-acl/[^/]+/[^/]+", _acls),
    NodeKind("/kafka-acl-extended/prefixed/TYPE/NAME", r"/kafka-acl-extended/[^/]+/[^/]+/[^/]+", _acls),
]
"""What Barnabas keeps where Kafka does."""

OURS = [
    NodeKind("/barnabas/session_keys/N", r"/barnabas/session_keys/\d+", _session_key),
    NodeKind("/barnabas/deleted_topics/ID", r"/barnabas/deleted_topics/[\w-]+", _deleted_topic),
    NodeKind(
        CONSTRUCTION,
        CONSTRUCTION,
        lambda path, data: ConstructionNode.encode(ConstructionNode.decode(data)),
    ),
]
"""What only Barnabas has."""

LEFT_OUT = [
    NodeKind("/config/changes", r"/config/changes/.*", lambda path, data: ConfigChange.decode(path, data).encode()),
    NodeKind(
        "/isr_change_notification",
        r"/isr_change_notification/.*",
        lambda path, data: IsrChange.decode(path, data).encode(),
    ),
    NodeKind(
        "/log_dir_event_notification",
        r"/log_dir_event_notification/.*",
        lambda path, data: LogDirectoryFailure.decode(path, data).encode(),
    ),
    NodeKind(
        "/admin/reassign_partitions",
        r"/admin/reassign_partitions",
        lambda _, data: Reassignments.decode(data).encode(),
    ),
    NodeKind("/feature", r"/feature", lambda _, data: FinalizedFeatures.decode(data).encode()),
    NodeKind("/kafka-acl-changes", r"/kafka-acl-changes/.*", _acl_change),
    NodeKind("/kafka-acl-extended-changes", r"/kafka-acl-extended-changes/.*", _acl_change),
    NodeKind("/consumers", r"/consumers/.*", _nothing),
]
"""What Kafka has and Barnabas neither reads nor writes; our classes know the format of most."""


def kind_of(path: str, kinds: list[NodeKind]) -> NodeKind | None:
    """None for a node that only holds others."""
    return next((kind for kind in kinds if kind.matches(path)), None)


# --- what our classes write for the facts of ZooKeeperKafka.java --------------------------------------------


def served_nodes(facts: Mapping[str, str]) -> dict[str, bytes]:
    """Every served node that has data, from what Kafka's clients asked for and what differs from run to run."""
    nodes = {
        CLUSTER_ID: ClusterId.encode(facts["cluster id"]),
        CONTROLLER: ControllerNode(1, int(facts[f"timestamp {CONTROLLER}"])).encode(),
        CONTROLLER_EPOCH: ControllerEpoch.encode(1),
        PRODUCER_ID_BLOCK: ProducerIdBlock(1, 0, 999).encode(),
        topic_config_path("orders"): encode_configs(
            {"retention.ms": "86400000", "cleanup.policy": "compact,delete", "min.insync.replicas": "2"}
        ),
        **{topic_config_path(topic): encode_configs({}) for topic in ("plain", "doomed", "moving")},
        broker_config_path(1): encode_configs({"log.cleaner.threads": "2"}),
        broker_config_path(None): encode_configs({"message.max.bytes": "2000000", "log.retention.ms": "3600000"}),
    }
    for registration in (_registration(facts, 1, None), _registration(facts, 1001, "rack-b")):
        nodes[registration.path] = registration.encode()
    for topic in topic_assignments(facts):
        nodes[topic.path] = topic.encode()
    alone = PartitionState(1, 1, (1,), controller_epoch=1)
    states = {("orders", number): alone for number in range(3)}
    states["plain", 0] = PartitionState(1, 0, (1,), controller_epoch=1)
    states["doomed", 0] = PartitionState(-1, 1, (1001,), controller_epoch=1)
    states["moving", 0] = PartitionState(-1, 2, (1001,), controller_epoch=1)
    nodes |= {PartitionState.path_of(*partition): state.encode() for partition, state in states.items()}
    nodes |= {entity.path: encode_configs(configs) for entity, configs in client_configs().items()}
    nodes |= {acls.path: acls.encode() for acls in resource_acls()}
    return nodes


EMPTY_NODES = (delete_topic_path("doomed"), "/brokers/seqid")
"""Served nodes that say all by being there, or by their version."""


def _registration(facts: Mapping[str, str], broker_id: int, rack: str | None) -> BrokerRegistration:
    protocols = {"CLIENT": "SASL_PLAINTEXT", "INTERNAL": "PLAINTEXT"}
    endpoints = [
        Endpoint(listener, protocol, "127.0.0.1", int(facts[f"port {broker_id} {listener}"]))
        for listener, protocol in protocols.items()
    ]
    timestamp_ms = int(facts[f"timestamp {BrokerRegistration.path_of(broker_id)}"])
    return BrokerRegistration(broker_id, tuple(endpoints), rack=rack, timestamp_ms=timestamp_ms)


def topic_assignments(facts: Mapping[str, str]) -> list[TopicAssignment]:
    partitions = {
        "orders": (ReplicaAssignment((1, 1001)), ReplicaAssignment((1001, 1)), ReplicaAssignment((1, 1001))),
        "plain": (ReplicaAssignment((1,)),),
        "doomed": (ReplicaAssignment((1001,)),),
        "moving": (ReplicaAssignment((1, 1001), adding=(1,), removing=(1001,)),),
    }
    return [TopicAssignment(name, parse_uuid(facts[f"topic id {name}"]), partitions[name]) for name in partitions]


def client_configs() -> dict[ClientEntity, dict[str, str]]:
    quotas: dict[ClientEntity, dict[str, float]] = {
        ClientEntity(user="alice"): {"producer_byte_rate": 1048576, "request_percentage": 12.5},
        ClientEntity(user=DEFAULT): {"controller_mutation_rate": 0.5},
        ClientEntity(client_id="loader 1/a*~é"): {"consumer_byte_rate": 2097152},
        ClientEntity(client_id=DEFAULT): {"request_percentage": 20_000_000},
        ClientEntity(user="CN=bob,O=a b", client_id="loader"): {"producer_byte_rate": 1000},
        ClientEntity(user="alice", client_id=DEFAULT): {"consumer_byte_rate": 3000},
        ClientEntity(user=DEFAULT, client_id=DEFAULT): {"request_percentage": 200},
        ClientEntity(ip="10.0.0.7"): {"connection_creation_rate": 50},
        ClientEntity(ip=DEFAULT): {"connection_creation_rate": 100},
    }
    configs = {
        entity: {name: encode_quota(name, value) for name, value in values.items()} for entity, values in quotas.items()
    }
    configs[ClientEntity(user="alice")]["SCRAM-SHA-256"] = scram_credential("sha256", 8192).encode()
    configs[ClientEntity(user="carol")] = {"SCRAM-SHA-512": scram_credential("sha512", 4096).encode()}
    return configs


def scram_credential(algorithm: str, iterations: int) -> ScramCredential:
    """RFC 5802: what a server keeps of a password."""
    salted = hashlib.pbkdf2_hmac(algorithm, PASSWORD, SALT, iterations)
    keyed = partial(hmac.digest, salted, digest=algorithm)
    stored_key = hashlib.new(algorithm, keyed(b"Client Key")).digest()
    return ScramCredential(SALT, stored_key, keyed(b"Server Key"), iterations)


def resource_acls() -> list[ResourceAcls]:
    topic, read = ResourceType.TOPIC, AclOperation.READ
    rules = {
        ResourcePattern(topic, "orders"): (
            AccessRule("User:alice", read),
            AccessRule("User:CN=bob,O=a b", AclOperation.DESCRIBE_CONFIGS, AclPermission.DENY, "10.0.0.7"),
        ),
        ResourcePattern(topic, "*"): (AccessRule("User:*", AclOperation.DESCRIBE),),
        ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"): (
            AccessRule("User:alice", AclOperation.IDEMPOTENT_WRITE),
        ),
        ResourcePattern(ResourceType.TRANSACTIONAL_ID, "tx"): (AccessRule("User:alice", AclOperation.WRITE),),
        ResourcePattern(ResourceType.GROUP, "team-", PatternType.PREFIXED): (AccessRule("User:alice", read),),
        ResourcePattern(topic, "team-", PatternType.PREFIXED): (AccessRule("User:carol", AclOperation.ALL),),
    }
    return [ResourceAcls(resource, rules[resource]) for resource in rules]
