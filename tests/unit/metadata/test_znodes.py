"""Nodes as Apache Kafka 3.9 wrote them. The texts below have its layout; the order of fields does not matter."""

import json
from collections.abc import Callable
from uuid import UUID

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import parse_uuid
from barnabas.metadata.errors import CorruptNode
from barnabas.metadata.znodes import (
    BrokerRegistration,
    ClusterId,
    ControllerEpoch,
    ControllerNode,
    Endpoint,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    VersionRange,
    broker_config_path,
    decode_configs,
    desanitize,
    encode_configs,
    sanitize,
    topic_config_path,
)
from barnabas.metadata.znodes_admin import (
    ConfigChange,
    FinalizedFeatures,
    IsrChange,
    LogDirectoryFailure,
    Reassignments,
    delete_topic_path,
)

TOPIC_ID = parse_uuid("mV6sF7SYS-axiQvnRkBn3Q")


def fields(data: bytes) -> object:
    return json.loads(data)


def test_broker_registration_has_kafkas_fields() -> None:
    broker = BrokerRegistration(
        broker_id=3,
        endpoints=(Endpoint("CLIENT", "SASL_SSL", "host1", 9092), Endpoint("INTERNAL", "PLAINTEXT", "::1", 9093)),
        rack="dc1",
        jmx_port=9999,
        timestamp_ms=1700000000000,
        features={"feature": VersionRange(1, 3)},
    )
    assert broker.path == "/brokers/ids/3"
    assert fields(broker.encode()) == {
        "version": 5,
        "host": "::1",
        "port": 9093,
        "jmx_port": 9999,
        "timestamp": "1700000000000",
        "endpoints": ["CLIENT://host1:9092", "INTERNAL://[::1]:9093"],
        "listener_security_protocol_map": {"CLIENT": "SASL_SSL", "INTERNAL": "PLAINTEXT"},
        "rack": "dc1",
        "features": {"feature": {"min_version": 1, "max_version": 3}},
    }
    assert BrokerRegistration.decode(3, broker.encode()) == broker


def test_broker_registration_of_an_older_version_is_read() -> None:
    data = b"""{"version":3,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5","endpoints":["SSL://h:9093"]}"""
    assert BrokerRegistration.decode(1, data) == BrokerRegistration(
        1, (Endpoint("SSL", "SSL", "h", 9093),), timestamp_ms=5
    )


def test_broker_without_plaintext_listener_says_so_to_old_clients() -> None:
    encoded = fields(BrokerRegistration(1, (Endpoint("S", "SSL", "h", 1),)).encode())
    assert isinstance(encoded, dict)
    assert (encoded["host"], encoded["port"]) == (None, -1)


def test_topic_assignment_has_kafkas_fields() -> None:
    topic = TopicAssignment(
        "t", TOPIC_ID, (ReplicaAssignment((1, 2)), ReplicaAssignment((2, 3, 1), adding=(3,), removing=(1,)))
    )
    assert topic.path == "/brokers/topics/t"
    assert fields(topic.encode()) == {
        "version": 3,
        "topic_id": "mV6sF7SYS-axiQvnRkBn3Q",
        "partitions": {"0": [1, 2], "1": [2, 3, 1]},
        "adding_replicas": {"1": [3]},
        "removing_replicas": {"1": [1]},
    }
    assert TopicAssignment.decode("t", topic.encode()) == topic


def test_topic_assignment_in_any_order_is_sorted_by_number() -> None:
    data = json.dumps({"version": 3, "topic_id": "mV6sF7SYS-axiQvnRkBn3Q", "partitions": {"1": [5], "0": [4]}}).encode()
    assert [one.replicas for one in TopicAssignment.decode("t", data).partitions] == [(4,), (5,)]


def test_partition_state_has_kafkas_fields() -> None:
    state = PartitionState(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=7)
    assert PartitionState.path_of("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert fields(state.encode()) == {
        "version": 1,
        "leader": 1,
        "leader_epoch": 4,
        "isr": [1, 2],
        "controller_epoch": 7,
    }
    assert PartitionState.decode("", state.encode()) == state
    recovering = PartitionState(1, 5, (1,), 7, is_recovering=True)
    assert fields(recovering.encode()) == {
        "version": 1,
        "leader": 1,
        "leader_epoch": 5,
        "isr": [1],
        "controller_epoch": 7,
        "leader_recovery_state": 1,
    }
    assert PartitionState.decode("", recovering.encode()) == recovering


def test_small_nodes_have_kafkas_fields() -> None:
    assert fields(ControllerNode(2, 5).encode()) == {
        "version": 2,
        "brokerid": 2,
        "timestamp": "5",
        "kraftControllerEpoch": -1,
    }
    assert ControllerNode.decode(ControllerNode(2, 5).encode()) == ControllerNode(2, 5)
    assert ControllerEpoch.encode(12) == b"12"
    assert ControllerEpoch.decode(b"12") == 12
    assert fields(ClusterId.encode("abc")) == {"version": "1", "id": "abc"}
    assert ClusterId.decode(ClusterId.encode("abc")) == "abc"
    block = ProducerIdBlock(1, 1000, 1999)
    assert fields(block.encode()) == {"version": 1, "broker": 1, "block_start": "1000", "block_end": "1999"}
    assert ProducerIdBlock.decode(block.encode()) == block


def test_configs_have_kafkas_fields_and_paths() -> None:
    configs = {"retention.ms": "5", "note": "é"}
    assert fields(encode_configs(configs)) == {"version": 1, "config": configs}
    assert decode_configs("", encode_configs(configs)) == configs
    assert decode_configs("", b"") == {}
    assert topic_config_path("t") == "/config/topics/t"
    assert broker_config_path(1) == "/config/brokers/1"
    assert broker_config_path(None) == "/config/brokers/<default>"


def test_administration_has_kafkas_fields_and_paths() -> None:
    partition = TopicPartition("t", 1)
    reassignments = Reassignments({partition: (1, 2)})
    assert fields(reassignments.encode()) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 1, "replicas": [1, 2]}],
    }
    assert Reassignments.decode(reassignments.encode()) == reassignments
    assert fields(ConfigChange("topics/t").encode()) == {"version": 2, "entity_path": "topics/t"}
    assert ConfigChange.decode("", ConfigChange("topics/t").encode()) == ConfigChange("topics/t")
    assert ConfigChange.PREFIX == "/config/changes/config_change_"
    isr_change = IsrChange((partition,))
    assert fields(isr_change.encode()) == {"version": 1, "partitions": [{"topic": "t", "partition": 1}]}
    assert IsrChange.decode("", isr_change.encode()) == isr_change
    assert IsrChange.PREFIX == "/isr_change_notification/isr_change_"
    assert fields(LogDirectoryFailure(4).encode()) == {"version": 1, "broker": 4, "event": 1}
    assert LogDirectoryFailure.decode("", LogDirectoryFailure(4).encode()) == LogDirectoryFailure(4)
    assert LogDirectoryFailure.PREFIX == "/log_dir_event_notification/log_dir_event_"
    features = FinalizedFeatures(True, {"metadata.version": 7})
    assert fields(features.encode()) == {
        "version": 2,
        "status": 1,
        "features": {"metadata.version": {"max_version_level": 7}},
    }
    assert FinalizedFeatures.decode(features.encode()) == features
    assert delete_topic_path("t") == "/admin/delete_topics/t"


def test_names_of_users_and_clients_become_parts_of_paths_as_in_kafka() -> None:
    for name, sanitized in {
        "a b": "a%20b",
        "a+b": "a%2Bb",
        "a*b": "a%2Ab",
        "a~b": "a%7Eb",
        "a/b": "a%2Fb",
        "é": "%C3%A9",
        "a.b-c_d": "a.b-c_d",
        "<default>": "%3Cdefault%3E",
    }.items():
        assert sanitize(name) == sanitized
        assert desanitize(sanitized) == name


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"{}",
        b"[" * 100_000,
        b'{"version":"x"}',
        b'{"version":5,"leader":true,"leader_epoch":1,"isr":[],"controller_epoch":1}',
        b'{"version":5,"partitions":{"0":[1],"2":[1]},"topic_id":"mV6sF7SYS-axiQvnRkBn3Q"}',
        b'{"version":5,"partitions":{"0":["1"]},"topic_id":"mV6sF7SYS-axiQvnRkBn3Q"}',
        b'{"version":5,"partitions":{"0":[1]},"topic_id":"short"}',
        b'{"version":5,"endpoints":["nonsense"],"jmx_port":1,"timestamp":"1"}',
        b'{"version":5,"endpoints":[],"jmx_port":1,"timestamp":"late"}',
        b'{"version":1,"endpoints":[],"jmx_port":1,"timestamp":"1"}',
        b'{"version":1,"status":3,"features":{}}',
        b'{"partitions":[1]}',
        b'{"config":{"a":1}}',
    ],
)
def test_damaged_node_raises_corrupt_node(data: bytes) -> None:
    decoders: list[Callable[[bytes], object]] = [
        lambda data: BrokerRegistration.decode(1, data),
        lambda data: TopicAssignment.decode("t", data),
        lambda data: PartitionState.decode("p", data),
        ControllerNode.decode,
        ControllerEpoch.decode,
        ClusterId.decode,
        ProducerIdBlock.decode,
        Reassignments.decode,
        FinalizedFeatures.decode,
        lambda data: IsrChange.decode("p", data),
        lambda data: ConfigChange.decode("p", data),
        lambda data: LogDirectoryFailure.decode("p", data),
    ]
    for decode in decoders:
        with pytest.raises(CorruptNode):
            decode(data)
    if data not in (b"", b"{}") and b"config" in data:
        with pytest.raises(CorruptNode):
            decode_configs("p", data)


def test_topic_id_of_a_node_is_a_uuid() -> None:
    assert isinstance(TopicAssignment.decode("t", TopicAssignment("t", TOPIC_ID, ()).encode()).topic_id, UUID)
