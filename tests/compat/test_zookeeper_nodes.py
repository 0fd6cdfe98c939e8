"""Nodes beside the last Kafka that kept its state in ZooKeeper: 3.9.1 reads ours, and writes what we would write."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from barnabas.base.uuid import uuid_text
from barnabas.metadata.znodes import (
    BARNABAS,
    BARNABAS_VERSIONS,
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
from barnabas.metadata.znodes_admin import delete_topic_path
from barnabas.metadata.znodes_configs import DEFAULT, ClientEntity, DefaultEntity, encode_quota
from tests.support.kafka import KafkaUnavailable
from tests.support.kafka_nodes import KafkaTree, content
from tests.support.kafka_zookeeper import record_tree, understood_by_kafka, zookeeper_kafka_jars
from tests.support.znode_classes import SERVED, kind_of, scram_credential, served_nodes

LARGE = 2**63 - 1
TOPIC_ID = UUID("99d4b4b2-7b4a-4c8e-9d3c-3f1f5a0c7e11")

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module", autouse=True)
def jars() -> Path:
    try:
        return zookeeper_kafka_jars()
    except KafkaUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def tree(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> KafkaTree:
    """What a Kafka that runs now leaves in ZooKeeper."""
    return record_tree(tmp_path_factory.mktemp("zookeeper-kafka"))


def test_kafka_writes_the_nodes_that_were_recorded(tree: KafkaTree) -> None:
    recorded = KafkaTree.load()
    now = tree.with_facts(recorded.facts)

    def comparable(tree: KafkaTree) -> dict[str, Any]:
        return {path: (node.content, node.version, node.is_ephemeral) for path, node in tree.nodes.items()}

    assert comparable(now) == comparable(recorded)


def test_our_classes_write_for_the_same_facts_what_kafka_writes(tree: KafkaTree) -> None:
    kafkas = {path: node.content for path, node in tree.nodes.items() if node.data and kind_of(path, SERVED)}

    assert {path: content(data) for path, data in served_nodes(tree.facts).items()} == kafkas


# --- what Kafka's own decoders understand ---------------------------------------------------------------------


def registration(broker_id: int, **additions: Any) -> tuple[bytes, dict[str, Any]]:
    endpoints = (Endpoint("CLIENT", "SASL_SSL", "host-1", 9092), Endpoint("INTERNAL", "PLAINTEXT", "::1", 9093))
    ours = BrokerRegistration(broker_id, endpoints, "rack-a", jmx_port=9999, timestamp_ms=1, **additions)
    understood = {
        "id": broker_id,
        "version": 5,
        "jmx port": 9999,
        "rack": "rack-a",
        "endpoints": [["CLIENT", "SASL_SSL", "host-1", 9092], ["INTERNAL", "PLAINTEXT", "::1", 9093]],
        "features": {BARNABAS: [BARNABAS_VERSIONS.min_version, BARNABAS_VERSIONS.max_version]} if additions else {},
    }
    return ours.encode(), understood


def without_plaintext(broker_id: int) -> tuple[bytes, dict[str, Any]]:
    ours = BrokerRegistration(broker_id, (Endpoint("S", "SSL", "h", 1),))
    understood: dict[str, Any] = {"id": broker_id, "version": 5, "jmx port": -1, "rack": None, "features": {}}
    return ours.encode(), {**understood, "endpoints": [["S", "SSL", "h", 1]]}


def state(ours: PartitionState) -> tuple[bytes, dict[str, Any]]:
    understood = {
        "leader": ours.leader,
        "leader epoch": ours.leader_epoch,
        "isr": list(ours.isr),
        "recovery": "RECOVERING" if ours.is_recovering else "RECOVERED",
        "controller epoch": ours.controller_epoch,
    }
    return ours.encode(), understood


def configs(texts: Mapping[str, str], *names: str | None) -> tuple[bytes, dict[str, Any]]:
    return encode_configs(texts), {"configs": dict(texts), "names": list(names)}


def brokers_and_topics() -> dict[str, tuple[bytes, dict[str, Any]]]:
    topic = TopicAssignment(
        "t", TOPIC_ID, (ReplicaAssignment((1, 2)), ReplicaAssignment((2, 3, 1), adding=(3,), removing=(1,)))
    )
    partitions = {"0": [[1, 2], [], []], "1": [[2, 3, 1], [3], [1]]}
    states = [
        PartitionState(1, 4, (1, 2), 7),
        PartitionState(-1, 5, (), 7, elr=(2, 1), elr_epochs=(LARGE, 3), min_insync_replicas=2),
        PartitionState(1, 6, (1,), 7, is_recovering=True, isr_epochs=(LARGE,), elr=(2,), elr_epochs=(9,)),
    ]
    return {
        BrokerRegistration.path_of(1): registration(1),
        BrokerRegistration.path_of(2): without_plaintext(2),
        BrokerRegistration.path_of(3): registration(
            3,
            features={BARNABAS: BARNABAS_VERSIONS},
            previous_epoch=LARGE,
            intact_since=15,
            directory_ids=(UUID(int=17),),
        ),
        topic.path: (topic.encode(), {"topic id": uuid_text(TOPIC_ID), "partitions": partitions}),
        **{PartitionState.path_of("t", number): state(one) for number, one in enumerate(states)},
        CONTROLLER: (ControllerNode(2, 5).encode(), {"broker": 2, "kraft epoch": -1}),
        CONTROLLER_EPOCH: (ControllerEpoch.encode(12), {"epoch": 12}),
        CLUSTER_ID: (ClusterId.encode("abc"), {"id": "abc"}),
        PRODUCER_ID_BLOCK: (
            ProducerIdBlock(1, LARGE - 999, LARGE).encode(),
            {"broker": 1, "first": LARGE - 999, "last": LARGE},
        ),
        delete_topic_path("t"): (b"", {}),
    }


def configs_and_users() -> dict[str, tuple[bytes, dict[str, Any]]]:
    nodes = {
        topic_config_path("t"): configs({"retention.ms": "5", "note": "é"}, "t"),
        broker_config_path(1): configs({}, "1"),
        broker_config_path(None): configs({"message.max.bytes": "1"}, None),
    }
    for entity in (
        ClientEntity(user="CN=bob,O=a b/c*~é"),
        ClientEntity(user="<default>"),
        ClientEntity(user=DEFAULT, client_id="loader"),
        ClientEntity(client_id=DEFAULT),
        ClientEntity(ip="10.0.0.7"),
    ):
        names = [name for name in (entity.user, entity.client_id, entity.ip) if name is not None]
        quota = {"request_percentage": encode_quota("request_percentage", 2e7)}
        nodes[entity.path] = configs(quota, *[None if isinstance(name, DefaultEntity) else name for name in names])
    credential = scram_credential("sha512", 4096)
    keys = [credential.salt.hex(), credential.stored_key.hex(), credential.server_key.hex(), 4096]
    nodes[ClientEntity(user="carol").path] = (
        encode_configs({"SCRAM-SHA-512": credential.encode()}),
        {"configs": {"SCRAM-SHA-512": keys}, "names": ["carol"]},
    )
    return nodes


def acls() -> dict[str, tuple[bytes, dict[str, Any]]]:
    nodes: dict[str, tuple[bytes, dict[str, Any]]] = {}
    for number, kind in enumerate(ResourceType):
        for pattern_type in PatternType:
            resource = ResourcePattern(kind, "a:b", pattern_type)
            rules = [AccessRule("User:CN=a,O=b", operation, AclPermission.DENY, "h") for operation in AclOperation]
            rules.append(AccessRule("User:*", AclOperation.ALL))
            understood = [[one.principal, one.operation.name, one.permission.name, one.host] for one in rules]
            nodes[resource.path] = (
                ResourceAcls(resource, tuple(rules)).encode(),
                {"resource": [kind.name, "a:b", pattern_type.name], "rules": sorted(understood, key=_java_text)},
            )
            change = AclChange(resource)
            nodes[f"{change.prefix}{number:010}"] = (change.encode(), {"resource": resource.path})
    return nodes


def _java_text(texts: list[str]) -> str:
    """How a list of texts prints in Java, by which the program sorts."""
    return f"[{', '.join(texts)}]"


def test_kafkas_decoders_understand_our_nodes_and_skip_our_additions() -> None:
    nodes = {**brokers_and_topics(), **configs_and_users(), **acls()}
    damaged = {BrokerRegistration.path_of(99): b"{}", PartitionState.path_of("t", 99): b'{"leader":1}'}
    understood = understood_by_kafka({**{path: data for path, (data, _) in nodes.items()}, **damaged})

    # A node that Kafka cannot read is refused, so what it understands of the others means something.
    assert ["error" in understood.pop(path) for path in damaged] == [True, True]
    assert understood == {path: {**meant, "path": path} for path, (_, meant) in nodes.items()}
