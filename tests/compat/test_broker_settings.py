"""The broker's setting table against what Apache Kafka prints of its own: names, types, defaults, rules, modes.

The settings are Kafka 4.3's and, for a cluster on ZooKeeper, those of 3.9.1 that 4.0 dropped.
"""

import pytest

from barnabas.base.settings import Setting
from barnabas.broker.setting_table import BROKER_SETTINGS, SERVER_SETTINGS, UNSUPPORTED, missing_feature
from tests.compat.test_settings import UPDATE_MODES, Listed, default_text, listing, rule_text
from tests.support.kafka_zookeeper import run_zookeeper_kafka_tool

pytestmark = pytest.mark.kafka

NEEDS_A_RESTART_HERE = {
    "background.threads",
    "listener.security.protocol.map",
    "listeners",
    "num.io.threads",
    "num.network.threads",
}
OF_A_CLUSTER_ON_ZOOKEEPER = {
    "broker.id.generation.enable",
    "leader.imbalance.per.broker.percentage",
    "reserved.broker.max.id",
}
STRICTER_THAN_KAFKA = {
    # Kafka takes any number of threads, and fails when the system has no more.
    "background.threads",
    # Numbers that would keep every client, or every member of a group, out.
    "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms",
    "group.min.session.timeout.ms",
    "offset.metadata.max.bytes",
    "socket.request.max.bytes",
    # Numbers with which no follower would stay in sync.
    "replica.fetch.wait.max.ms",
    "replica.lag.time.max.ms",
    "replica.socket.timeout.ms",
    # Kafka finds out when a topic is made.
    "num.partitions",
    "offsets.topic.num.partitions",
    "offsets.topic.segment.bytes",
    # Kafka finds out when a topic is made.
    "default.replication.factor",
    # Kafka finds out when the topic is first written to.
    "offsets.topic.compression.codec",
    # Zero would make no buffer, and Kafka leaves the refusal to the operating system.
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    # Kafka takes a mistyped word for "do not check the host".
    "zookeeper.ssl.endpoint.identification.algorithm",
    # Kafka finds out when ZooKeeper refuses them.
    "zookeeper.connection.timeout.ms",
    "zookeeper.session.timeout.ms",
}
RULE_HAS_NO_WORDS_IN_KAFKA = {"authorizer.class.name", "process.roles"}
OUR_OWN = {"broker.suspicion.enable", "metrics.listen", "network.awake.us", "zookeeper.digest.identity"}
OUR_OWN_DEFAULT = {
    # Fixed sizes keep the kernel from fitting its buffers to the connection.
    "socket.receive.buffer.bytes": "102400",
    "socket.send.buffer.bytes": "102400",
    # What a dead machine led waits for it.
    "zookeeper.session.timeout.ms": "18000",
}


@pytest.fixture(scope="module")
def kafka_settings() -> dict[str, Listed]:
    dropped = listing("kafka.server.KafkaConfig", run_zookeeper_kafka_tool)
    names = [name for name in dropped if name.startswith("zookeeper.") or name in OF_A_CLUSTER_ON_ZOOKEEPER]
    needed = {name: dropped[name] for name in names}
    return listing("kafka.server.KafkaConfig") | needed


def test_every_setting_of_kafka_is_known_as_supported_or_not(kafka_settings) -> None:
    assert [name for name in kafka_settings if name not in SERVER_SETTINGS and missing_feature(name) is None] == []


def _shared_settings() -> list[Setting]:
    return [setting for setting in BROKER_SETTINGS if setting.name not in OUR_OWN]


def test_settings_of_our_own_are_not_kafkas(kafka_settings) -> None:
    assert OUR_OWN.isdisjoint(kafka_settings)


def test_settings_have_kafkas_types_defaults_and_update_modes(kafka_settings) -> None:
    for ours in _shared_settings():
        theirs = kafka_settings[ours.name]
        mode = theirs.update_mode if ours.name in NEEDS_A_RESTART_HERE else UPDATE_MODES[ours.dynamic]
        default = "" if ours.name == "node.id" else OUR_OWN_DEFAULT.get(ours.name, default_text(ours))
        assert (ours.type.name.lower(), default, mode) == (
            theirs.type,
            theirs.default,
            theirs.update_mode,
        ), ours.name


def test_rules_are_kafkas_unless_named_as_stricter(kafka_settings) -> None:
    for ours in _shared_settings():
        if ours.name not in RULE_HAS_NO_WORDS_IN_KAFKA:
            is_same = rule_text(ours) == kafka_settings[ours.name].valid
            assert is_same != (ours.name in STRICTER_THAN_KAFKA), ours.name


def test_every_unsupported_beginning_stands_for_a_setting_of_kafka(kafka_settings) -> None:
    needless = [name for name in UNSUPPORTED if not any(one.startswith(name) for one in kafka_settings)]

    assert needless == []
