"""A broker's settings: what is known, what is refused, and what changes while it runs."""

from dataclasses import fields

import pytest

from barnabas.base.errors import InvalidSetting
from barnabas.broker.recognised_settings import recognise
from barnabas.broker.setting_table import BROKER_SETTINGS
from barnabas.broker.settings import BrokerConfig, BrokerSettings
from barnabas.metadata.image import BrokerConfigsChanged, ClusterImage, TopicConfigsChanged
from barnabas.metadata.zookeeper.zookeeper_options import TlsFiles, ZooKeeperOptions
from barnabas.net.server import ListenerSpec

KAFKAS_OWN_FILE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    ),
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
"""The settings of `config/server.properties` as Kafka 4 ships it."""


def changed(broker_id: int | None, **configs: str) -> ClusterImage:
    texts = {name.replace("_", "."): text for name, text in configs.items()}
    return ClusterImage().apply([BrokerConfigsChanged(broker_id, texts)])


WITHOUT_A_FIELD = {
    "broker.id",  # Kafka's old name of node.id
    "advertised.listeners",  # these two are parts of `listeners`
    "listener.security.protocol.map",
    "controller.listener.names",  # the rest is accepted for the sake of Kafka's files
    "process.roles",
    "num.io.threads",
    "replica.fetch.min.bytes",
    "num.network.threads",
    "authorizer.class.name",
}


def test_every_setting_of_the_broker_has_a_field_and_every_field_a_setting() -> None:
    names = {setting.name for setting in BROKER_SETTINGS}
    assert {field.name for field in fields(BrokerConfig)} == {
        name.replace(".", "_") for name in names - WITHOUT_A_FIELD
    }
    assert names >= WITHOUT_A_FIELD


def test_kafkas_own_configuration_file_is_understood() -> None:
    texts, notes = recognise(KAFKAS_OWN_FILE)
    settings = BrokerSettings(texts)

    assert settings.config.listeners == (ListenerSpec("PLAINTEXT", "", 9092, "localhost", 9092),)
    assert settings.config.node_id == 1
    assert settings.log_manager_config.log_dirs == ("/tmp/kraft-combined-logs",)
    *without_effect, listener = notes
    assert [note.split()[0] for note in without_effect] == [
        "controller.quorum.bootstrap.servers",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    ]
    assert listener == "the listener CONTROLLER is ignored: Barnabas needs no connections between controllers"


def test_unknown_setting_is_said_with_the_nearest_right_one() -> None:
    texts, notes = recognise({"num.partition": "2", "retention.ms": "5", "ssl.keystore.location": "x"})

    assert texts == {}
    assert "did you mean num.partitions?" in notes[0]
    assert "log.retention.ms" in notes[1]
    assert "no TLS" in notes[2]


def test_broker_without_settings_has_kafkas_defaults() -> None:
    config = BrokerSettings().config

    assert config.listeners == (ListenerSpec("PLAINTEXT", "", 9092),)
    assert config.node_id is None
    assert config.auto_create_topics_enable
    assert config.fetch_max_bytes == 57_671_680


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"no.such.setting": "1"}, "no broker setting"),
        ({"num.partitions": "0"}, "num.partitions=0"),
        ({"node.id": "1", "broker.id": "2"}, "differ"),
        ({"listeners": "PLAINTEXT"}, "NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://:70000"}, "NAME://HOST:PORT"),
        ({"listeners": "SSL://:9092"}, "PLAINTEXT only"),
        ({"listeners": "OTHER://:9092"}, "needs a protocol"),
        ({"listeners": "PLAINTEXT://:9092,plaintext://:9093"}, "two addresses"),
        ({"listeners": "CONTROLLER://:9092", "controller.listener.names": "CONTROLLER"}, "no listener for clients"),
        ({"advertised.listeners": "OTHER://host:9092"}, "does not have"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients can reach"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "NAME:PROTOCOL"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "ADDRESS:NUMBER"),
        ({"authorizer.class.name": "org.example.Authorizer"}, "access control"),
        (
            {
                "listeners": "A://:9092,B://:9092",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            },
            "same address",
        ),
        ({"inter.broker.listener.name": "OTHER"}, r"OTHER is none of the listeners \(PLAINTEXT\)"),
        ({"zookeeper.connect": "host:70000"}, "no address of a ZooKeeper server"),
        ({"zookeeper.connect": "host", "zookeeper.set.acl": "true"}, "need an identity"),
        ({"zookeeper.connect": "host", "zookeeper.digest.identity": "s3cret"}, "must be USER:PASSWORD"),
        ({"zookeeper.ssl.endpoint.identification.algorithm": "HTPS"}, r"one of HTTPS \(may be empty\)"),
        ({"zookeeper.connect": "host", "broker.id": "1001"}, "must not be more than reserved.broker.max.id=1000"),
        ({"zookeeper.connect": "host", "broker.id.generation.enable": "false"}, "broker.id must be set"),
    ],
)
def test_wrong_setting_is_refused_with_the_reason(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        BrokerSettings(texts)


def test_listeners_of_both_address_families_and_names_are_read() -> None:
    config = BrokerSettings(
        {
            "listeners": "INSIDE://[::1]:9092,OUTSIDE://127.0.0.1:0",
            "advertised.listeners": "OUTSIDE://klamm:19092",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        }
    ).config

    assert config.listeners == (
        ListenerSpec("INSIDE", "::1", 9092),
        ListenerSpec("OUTSIDE", "127.0.0.1", 0, "klamm", 19092),
    )


def test_brokers_reach_each_other_through_the_first_listener_or_the_named_one() -> None:
    texts = {
        "listeners": "OUTSIDE://:9092,INSIDE://:9093",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    }

    assert BrokerSettings(texts).config.inter_broker_listener == "OUTSIDE"
    assert BrokerSettings({**texts, "inter.broker.listener.name": "inside"}).config.inter_broker_listener == "INSIDE"


def test_broker_without_zookeeper_is_alone() -> None:
    assert BrokerSettings().config.zookeeper_options() is None
    assert BrokerSettings({"zookeeper.connect": " ", "broker.id": "1001"}).config.zookeeper_options() is None


def test_zookeeper_has_kafkas_defaults_but_a_shorter_session() -> None:
    options = BrokerSettings({"zookeeper.connect": "a:2181,b:2181/kafka"}).config.zookeeper_options()

    assert options == ZooKeeperOptions("a:2181,b:2181", "/kafka", session_timeout_ms=6_000, connection_timeout_ms=6_000)


def test_zookeeper_options_take_identity_and_files_and_secrets_are_not_shown() -> None:
    config = BrokerSettings(
        {
            "zookeeper.connect": "a",
            "zookeeper.connection.timeout.ms": "5",
            "zookeeper.set.acl": "true",
            "zookeeper.digest.identity": "barnabas:s3cret",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": "/authorities.pem",
            "zookeeper.ssl.keystore.location": "/broker.pem",
            "zookeeper.ssl.keystore.password": "s3cret",
            "zookeeper.ssl.endpoint.identification.algorithm": "",
        }
    ).config
    options = config.zookeeper_options()

    assert options is not None
    assert (options.connection_timeout_ms, options.identity, options.has_access_lists) == (5, "barnabas:s3cret", True)
    assert options.tls == TlsFiles("/authorities.pem", "/broker.pem", None, "s3cret", is_host_name_checked=False)
    assert "s3cret" not in repr(config)


def test_settings_of_a_kafka_on_zookeeper_that_have_no_effect_are_said() -> None:
    socket_class = {"zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty"}
    texts, notes = recognise({"zookeeper.connect": "a", **socket_class})

    assert texts == {"zookeeper.connect": "a"}
    assert notes == ["zookeeper.clientCnxnSocket has no effect: Barnabas has no other ways to reach ZooKeeper"]


def test_server_options_take_the_limits() -> None:
    options = BrokerSettings(
        {
            "socket.request.max.bytes": "1000",
            "max.connections": "5",
            "max.connections.per.ip.overrides": "10.0.0.1:2, ::1:3",
            "connections.max.idle.ms": "-1",
            "socket.send.buffer.bytes": "-1",
        }
    ).config.server_options()

    assert options.connection.request_bytes_max == 1000
    assert options.connections_max == 5
    assert options.connections_per_host_overrides == {"10.0.0.1": 2, "::1": 3}
    assert options.idle_seconds is None
    assert options.send_buffer_bytes is None
    assert options.queued_request_bytes_max is None


def test_change_for_one_broker_goes_over_that_for_all_and_over_the_file() -> None:
    settings = BrokerSettings({"max.connections": "1"})
    for_all = changed(None, max_connections="2")
    for_one = for_all.apply([BrokerConfigsChanged(7, {"max.connections": "3"})])

    assert settings.current_config(ClusterImage(), 7).max_connections == 1
    assert settings.current_config(for_all, 7).max_connections == 2
    assert settings.current_config(for_one, 7).max_connections == 3
    assert settings.current_config(for_one, 8).max_connections == 2


def test_change_that_cannot_be_used_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    settings = BrokerSettings()
    image = changed(None, log_retention_ms="x", from_the_future="1", message_max_bytes="99")

    assert settings.current(image, 1) == {"message.max.bytes": "99"}
    assert len(caplog.records) == 2


def test_topic_settings_lie_over_the_changed_defaults() -> None:
    settings = BrokerSettings({"log.retention.hours": "1"})
    image = changed(None, message_max_bytes="99").apply([TopicConfigsChanged("orders", {"segment.ms": "5"})])

    config = settings.log_config(image, 1, "orders")
    assert (config.retention_ms, config.max_message_bytes, config.segment_ms) == (3_600_000, 99, 5)
    assert settings.log_config(image, 1, "others").segment_ms == 604_800_000


def test_topic_with_settings_that_cannot_be_used_gets_the_defaults(caplog: pytest.LogCaptureFixture) -> None:
    image = ClusterImage().apply([TopicConfigsChanged("orders", {"segment.ms": "x"})])

    assert BrokerSettings().log_config(image, 1, "orders").segment_ms == 604_800_000
    assert "orders" in caplog.text
