"""Kafka's own tools for groups, and what they read of Barnabas: its answers, and its files of `__consumer_offsets`."""

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from barnabas.testing import Broker
from barnabas.wire.apis import ApiKey
from tests.support.group_scenarios import GROUP_SETTINGS
from tests.support.kafka import run_tools
from tests.support.side_by_side import Side
from tests.support.side_by_side_cast import protocols

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
TIMEOUT_SECONDS = 180


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    with Broker({**GROUP_SETTINGS, "offsets.topic.num.partitions": "1"}) as broker:
        broker.create_topic("orders", partitions=2)
        broker.append("orders", [b"%d" % number for number in range(10)])
        yield broker


@contextmanager
def member(broker: Broker) -> Iterator[Consumer]:
    """The only one of its group, with all partitions, and 4 of 10 records of the first committed."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "client.id": "klamm", "log_level": 0}
    with closing(Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe(["orders"])
        assert len(consumer.consume(10, TIMEOUT_SECONDS)) == 10
        consumer.commit(offsets=[TopicPartition("orders", 0, 4, metadata="here")], asynchronous=False)
        yield consumer


def run(broker: Broker, *invocations: tuple[str, ...]) -> list[str]:
    return run_tools([(tool, "--bootstrap-server", broker.bootstrap, *arguments) for tool, *arguments in invocations])


def rows(output: str) -> list[list[str]]:
    """The lines of a table that are about the group."""
    return [line.split() for line in output.splitlines() if line.startswith("readers ")]


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka")
def test_consumer_groups_tool_with_an_active_group(broker: Broker) -> None:
    readers = ("--group", "readers")
    with member(broker):
        listed, by_state, offsets, members, state, reset, deleted, unknown, groups = run(
            broker,
            (CONSUMER_GROUPS, "--list"),
            (CONSUMER_GROUPS, "--list", "--state", "stable"),
            (CONSUMER_GROUPS, "--describe", *readers, "--offsets"),
            (CONSUMER_GROUPS, "--describe", *readers, "--members", "--verbose"),
            (CONSUMER_GROUPS, "--describe", *readers, "--state"),
            (CONSUMER_GROUPS, "--reset-offsets", *readers, "--topic", "orders", "--to-earliest", "--execute"),
            (CONSUMER_GROUPS, "--delete", *readers),
            (CONSUMER_GROUPS, "--describe", "--group", "unknown"),
            (GROUPS, "--list"),
        )

    assert listed.split() == ["readers"]
    assert rows(by_state) == [["readers", "Stable"]]
    first, second = sorted(rows(offsets))
    assert first[:6] == ["readers", "orders", "0", "4", "10", "6"]
    assert first[7:] == ["/127.0.0.1", "klamm"]
    assert second[:6] == ["readers", "orders", "1", "-", "0", "-"]
    ((_, member_id, host, client_id, count, _, assignment, *_),) = rows(members)
    assert re.fullmatch("klamm-[0-9a-f-]{36}", member_id)
    assert (host, client_id, count, assignment) == ("/127.0.0.1", "klamm", "2", "orders:0,1")
    assert rows(state) == [["readers", broker.bootstrap, "(1)", "range", "Stable", "1"]]
    assert "can only be reset if the group 'readers' is inactive, but the current state is Stable" in reset
    assert "GroupNotEmptyException" in deleted
    assert "GroupIdNotFoundException" in unknown
    assert rows(groups) == [["readers", "Classic", "consumer"]]


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka")
def test_consumer_groups_tool_resets_and_deletes_an_empty_group(broker: Broker) -> None:
    with member(broker):
        pass
    reset = (CONSUMER_GROUPS, "--reset-offsets", "--group", "readers", "--topic", "orders:0")
    planned, shifted, described, latest, uncommitted, deleted, listed = run(
        broker,
        (*reset, "--to-offset", "7", "--dry-run"),
        (*reset, "--shift-by", "-2", "--execute"),
        (CONSUMER_GROUPS, "--describe", "--group", "readers"),
        (*reset, "--to-latest", "--execute"),
        (CONSUMER_GROUPS, "--delete-offsets", "--group", "readers", "--topic", "orders:0"),
        (CONSUMER_GROUPS, "--delete", "--group", "readers"),
        (CONSUMER_GROUPS, "--list"),
    )

    assert rows(planned) == [["readers", "orders", "0", "7"]]
    assert rows(shifted) == [["readers", "orders", "0", "2"]]
    assert "Consumer group 'readers' has no active members." in described
    assert rows(described)[0][:6] == ["readers", "orders", "0", "2", "10", "8"]
    assert rows(latest) == [["readers", "orders", "0", "10"]]
    assert "Request succeeded for deleting offsets from group readers." in uncommitted
    assert "Deletion of requested consumer groups ('readers') was successful." in deleted
    assert listed.split() == []


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka")
def test_dump_tool_decodes_our_offsets_topic(broker: Broker) -> None:
    with member(broker):
        pass
    run(broker, (CONSUMER_GROUPS, "--delete", "--group", "readers"))
    broker.stop()
    (path,) = (broker.data_directory / "__consumer_offsets-0").glob("*.log")
    (dumped,) = run_tools([(DUMP, "--offsets-decoder", "--files", str(path))])

    records = re.findall(r"key: (\{.*?\}) payload: (.*)", dumped)
    decoded: list[tuple[Any, Any]] = [
        (json.loads(key), None if payload == "<DELETE>" else json.loads(payload)) for key, payload in records
    ]
    commits = [value for key, value in decoded if key["type"] == "1"]
    groups = [value for key, value in decoded if key["type"] == "2"]
    commit_key = next(key for key, _ in decoded if key["type"] == "1")
    assert commit_key["data"] == {"group": "readers", "topic": "orders", "partition": 0}
    assert commits[0]["version"] == "4"
    commit = commits[0]["data"]
    metadata = commit["metadata"].rstrip("\0")  # this client sends the end of its C string, too
    assert (commit["offset"], commit["leaderEpoch"], metadata) == (4, -1, "here")
    stable = next(group for group in groups if group["data"]["members"])
    assert stable["version"] == "3"
    (only,) = stable["data"]["members"]
    assert (only["clientId"], only["clientHost"]) == ("klamm", "/127.0.0.1")
    assert only["subscription"]["topics"] == ["orders"]
    assert only["assignment"]["assignedPartitions"] == [{"topic": "orders", "partitions": [0, 1]}]
    assert (commits[-1], groups[-1]) == (None, None)  # tombstones
    assert "isvalid: false" not in dumped


# --- Kafka Connect's kind of group ------------------------------------------------------------------------

_MEMBER_ID_REQUIRED = 79
_REBALANCE_IN_PROGRESS = 27


def test_group_of_another_protocol_type_passes_its_bytes_untouched() -> None:
    """As workers of Kafka Connect join: no topics are subscribed, and only they know what the bytes mean."""
    with Broker(GROUP_SETTINGS) as broker, closing(Side("Barnabas", broker.bootstrap)) as side:
        klamm, frieda = side.line("klamm"), side.line("frieda")
        ids = [_ask_for_id(line, metadata) for line, metadata in ((klamm, b"\0\1url-k"), (frieda, b"\0\1url-f"))]
        alone = klamm.ask(ApiKey.JOIN_GROUP, 9, _join(ids[0], b"\0\1url-k"))
        assert (alone["error_code"], alone["generation_id"], alone["protocol_type"]) == (0, 1, "connect")
        frieda.begin(ApiKey.JOIN_GROUP, 9, _join(ids[1], b"\0\1url-f"))
        beat = {"group_id": "connect-cluster", "generation_id": 1, "member_id": ids[0]}
        while klamm.ask(ApiKey.HEARTBEAT, 4, beat)["error_code"] != _REBALANCE_IN_PROGRESS:
            pass
        leader = klamm.ask(ApiKey.JOIN_GROUP, 9, _join(ids[0], b"\0\1url-k"))
        follower = frieda.finish()
        assert (leader["leader"], leader["protocol_name"]) == (ids[0], "sessioned")
        assert {one["member_id"]: one["metadata"] for one in leader["members"]} == {
            ids[0]: b"\0\1url-k",
            ids[1]: b"\0\1url-f",
        }
        assert follower["members"] == []
        frieda.begin(ApiKey.SYNC_GROUP, 5, _sync(ids[1], []))
        tasks = [{"member_id": ids[0], "assignment": b"\xff\0tasks"}, {"member_id": ids[1], "assignment": b""}]
        assert klamm.ask(ApiKey.SYNC_GROUP, 5, _sync(ids[0], tasks))["assignment"] == b"\xff\0tasks"
        assert frieda.finish()["assignment"] == b""
        (listed,) = side.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})["groups"]
        assert (listed["protocol_type"], listed["group_state"]) == ("connect", "Stable")


def _ask_for_id(line: Side, metadata: bytes) -> str:
    answer = line.ask(ApiKey.JOIN_GROUP, 9, _join("", metadata))
    while answer["error_code"] in (14, 15, 16):  # the coordinator is on its way
        line.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "connect-cluster", "key_type": 0})
        answer = line.ask(ApiKey.JOIN_GROUP, 9, _join("", metadata))
    assert answer["error_code"] == _MEMBER_ID_REQUIRED, answer
    return str(answer["member_id"])


def _join(member_id: str, metadata: bytes) -> dict[str, Any]:
    return {
        "group_id": "connect-cluster",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "protocol_type": "connect",
        "protocols": protocols("sessioned", "compatible", "default", metadata=metadata),
    }


def _sync(member_id: str, assignments: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "group_id": "connect-cluster",
        "generation_id": 2,
        "member_id": member_id,
        "protocol_type": "connect",
        "protocol_name": "sessioned",
        "assignments": assignments,
    }
