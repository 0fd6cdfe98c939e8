"""The files of a local cluster, and the addresses of its brokers."""

import os
import socket
import stat
from pathlib import Path

import pytest

from barnabas.base.errors import InvalidSetting
from barnabas.base.properties import parse_properties
from barnabas.broker.settings import BrokerSettings
from barnabas.cli.broker.given_settings import make_settings
from barnabas.cli.local_cluster.cluster_directory import LocalBroker, check_single, common_texts, plan_brokers
from barnabas.cli.ports import PortUnavailable
from barnabas.cli.remote import CommandFailed

FREE = "127.0.0.1:0"


def plan(directory: Path, count: int, listen: str | None = None, metrics_port: int | None = None) -> list[LocalBroker]:
    """Planned and written, as a start does it."""
    brokers = plan_brokers(directory, count, listen, metrics_port)
    for broker in brokers:
        broker.write_properties(common_texts({}, None, "127.0.0.1:2181", brokers=count))
    return brokers


def test_first_broker_listens_where_it_is_told_and_the_others_on_free_ports(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    brokers = plan(tmp_path, 3, f"127.0.0.1:{port}")

    assert [broker.broker_id for broker in brokers] == [1, 2, 3]
    assert brokers[0].address == f"127.0.0.1:{port}"
    assert {broker.host for broker in brokers} == {"127.0.0.1"}
    assert len({broker.port for broker in brokers}) == 3


def test_properties_are_those_of_a_broker_of_a_cluster_and_for_the_owner_alone(tmp_path: Path) -> None:
    (broker,) = plan(tmp_path, 1, FREE, metrics_port=0)
    settings = make_settings(None, None, {}, broker.properties_file, defaults={})

    assert settings.config.node_id == 1
    assert settings.config.listeners[0].port == broker.port
    assert settings.config.metrics_listen is not None
    assert settings.config.metrics_listen.port == broker.metrics_port
    assert settings.config.offsets_topic_replication_factor == 1
    assert settings.config.zookeeper_connect == "127.0.0.1:2181"
    assert list(settings.log_manager_config.log_dirs) == [str(tmp_path / "broker-1" / "data")]
    assert stat.S_IMODE(os.stat(broker.properties_file).st_mode) == 0o600


def test_brokers_keep_their_ports_and_further_ones_join(tmp_path: Path) -> None:
    first = plan(tmp_path, 2, FREE)
    again = plan(tmp_path, 3)

    assert again[:2] == first
    moved = plan(tmp_path, 3, FREE)
    assert [broker.port for broker in moved[1:]] == [broker.port for broker in again[1:]]
    assert moved[0].port != again[0].port


def test_port_that_was_taken_meanwhile_is_replaced_unless_it_is_the_first_brokers(tmp_path: Path) -> None:
    first = plan(tmp_path, 2, FREE)
    with socket.create_server(("127.0.0.1", first[1].port)):
        assert plan(tmp_path, 2)[1].port != first[1].port
    with (
        socket.create_server(("127.0.0.1", first[0].port)),
        pytest.raises(PortUnavailable, match=r"Address already in use; choose another address with --listen"),
    ):
        plan(tmp_path, 2)


def test_metrics_have_ports_one_after_the_other(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    try:
        brokers = plan(tmp_path, 3, FREE, metrics_port=port)
    except PortUnavailable:
        pytest.skip("another process has the port above")
    assert [broker.metrics_port for broker in brokers] == [port, port + 1, port + 2]


def test_brokers_that_are_left_out_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan(tmp_path, 3, FREE)
    plan(tmp_path, 1)

    said = capsys.readouterr().err
    assert said == f"not started, though {tmp_path} has their data: broker-2, broker-3; their partitions are offline\n"


def test_directory_of_a_cluster_is_refused_to_a_single_broker(tmp_path: Path) -> None:
    check_single(tmp_path)
    plan(tmp_path, 2, FREE)
    with pytest.raises(CommandFailed, match=r"has the data of 2 brokers; give --brokers 2, or another directory"):
        check_single(tmp_path)


def test_settings_of_all_brokers_come_from_the_file_and_the_command_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nbroker.id=7\nzookeeper.connect=a\nlog.retention.hours=1\n")
    texts = common_texts({"num.partitions": "4"}, file, "b:2181/kafka", brokers=3)

    assert texts["num.partitions"] == "4"
    assert texts["log.retention.hours"] == "1"
    assert texts["zookeeper.connect"] == "b:2181/kafka"
    assert "broker.id" not in texts
    assert caplog.messages == [f"{file}: broker.id has no effect with --brokers: it differs from broker to broker"]


@pytest.mark.parametrize(("brokers", "replicas", "minimum"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_replicas_and_their_minimum_go_by_the_number_of_brokers(brokers: int, replicas: int, minimum: int) -> None:
    settings = BrokerSettings(common_texts({}, None, "a:2181", brokers=brokers))
    assert settings.config.default_replication_factor == replicas
    assert settings.config.offsets_topic_replication_factor == replicas
    assert settings.texts.get("min.insync.replicas", "1") == str(minimum)


def test_given_replicas_and_minimum_go_before_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("default.replication.factor=2\n")
    texts = common_texts({"min.insync.replicas": "1"}, file, "a:2181", brokers=3)
    assert (texts["default.replication.factor"], texts["min.insync.replicas"]) == ("2", "1")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"node.id": "1"}, "--set node.id is not allowed with --brokers"),
        ({"num.partitions": "0"}, "num.partitions=0 is not allowed"),
        ({"no.such": "1"}, "there is no broker setting"),
        ({"zookeeper.connect": "a:b"}, "no address of a ZooKeeper server"),
    ],
)
def test_mistake_is_refused_before_anything_starts(given: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        common_texts(given, None, None, brokers=3)


def test_any_path_can_be_written_in_the_properties(tmp_path: Path) -> None:
    directory = tmp_path / "a = b: é\\c"
    (broker,) = plan(directory, 1, FREE)

    texts = parse_properties(broker.properties_file.read_text(encoding="utf-8"))
    assert texts["log.dirs"] == str(directory / "broker-1" / "data")
