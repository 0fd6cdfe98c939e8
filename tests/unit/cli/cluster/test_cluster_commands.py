"""`barnabas cluster describe` and `watch`."""

import asyncio
import io
import json
import re
import socket
from pathlib import Path
from uuid import UUID

import pytest
from rich.console import Console

from barnabas.base.ids import TopicPartition
from barnabas.cli.cluster.cluster_view import BrokerView, ClusterLook, ClusterView, TroubledPartitions, _directories
from barnabas.client.admin import Admin, LogDirectory
from barnabas.client.cluster import Cluster
from barnabas.client.metadata import PartitionMetadata, TopicMetadata
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.leaders import NodeEndpoint
from tests.support.command_line import run

DISK = LogDirectory(1, "/data", ErrorCode.NONE, 2 << 30, 1 << 30, {TopicPartition("orders", 0): 2048})
STRAYS = tuple(f"orders-{number}.x-stray" for number in range(3))
LITTERED = LogDirectory(3, "/data", ErrorCode.NONE, -1, -1, {}, 102, STRAYS)
ONE = BrokerView(1, "127.0.0.1:9092", "Ottensen", 1, 2, (DISK,))
SILENT = BrokerView(2, "127.0.0.1:9192", None, 0, 1, None)
OFFLINE = tuple(TopicPartition("orders", number) for number in range(1, 8))
SICK = ClusterView("abc", 2, 1, 8, (ONE, SILENT), TroubledPartitions(OFFLINE))


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_one_broker_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker({"broker.rack": "Altona"}) as broker:
        broker.create_topic("orders", partitions=3)
        status, out, err = run(capsys, "cluster", "describe", "-b", broker.bootstrap)
        described = json.loads(run(capsys, "cluster", "describe", "--json", "-b", broker.bootstrap)[1])

    assert (status, err) == (0, "")
    heading, columns, row = words(out)
    assert heading.endswith(", 1 topic")
    assert columns == "broker address rack role leads replicas log size disk free"
    assert row.startswith(f"1 {broker.bootstrap} Altona controller 3 3 0 B ")
    assert (described["controller_id"], described["partitions"], described["offline"]) == (1, 3, [])
    assert (described["brokers"][0]["leads"], described["brokers"][0]["answers"]) == (3, True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "is not one of 'barnabas up --brokers': give the options of the broker, with its zookeeper.connect"),
        (("--zookeeper", "127.0.0.1:1", "--topic-id", "orders=x"), "--topic-id orders: "),
        (("--zookeeper", "127.0.0.1:1"), "is not a directory"),
    ],
)
def test_rebuild_that_cannot_begin_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    status, out, err = run(capsys, "cluster", "rebuild", "--data-dir", str(tmp_path / "none"), *options)
    assert (status, out) == (1, "")
    assert reason in err


def test_cluster_is_watched_in_lines_or_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        status, out, _ = run(capsys, "cluster", "watch", "-n", "2", "--interval", "0.1", "-b", broker.bootstrap)
        seen = run(capsys, "cluster", "watch", "-n", "1", "--json", "-b", broker.bootstrap)[1]

    assert status == 0
    assert [line[10:] for line in out.splitlines()] == ["1 broker, controller 1, 1 partition"] * 2
    assert re.match(r"\d\d:\d\d:\d\d  ", out)
    assert json.loads(seen)["at_ms"] > 0


def test_what_is_wrong_is_said() -> None:
    assert SICK.problems == [
        "no answer from broker 2",
        "7 partitions offline: orders-1, orders-2, orders-3, orders-4, orders-5 and 2 more",
    ]
    assert ClusterView("abc", -1, 0, 0, (ONE,), TroubledPartitions()).problems == ["there is no controller"]
    assert ClusterView("abc", 1, 0, 0, (ONE,), TroubledPartitions()).problems == []
    three = BrokerView(3, "127.0.0.1:9292", None, 0, 0, (LITTERED,))
    littered = ClusterView("abc", 3, 0, 0, (three,), TroubledPartitions())
    assert littered.problems == [
        "102 stray logs on broker 3: /data/orders-0.x-stray, /data/orders-1.x-stray, /data/orders-2.x-stray and 99 more"
    ]
    assert (littered.fields()["brokers"][0]["stray_logs"], len(littered.fields()["brokers"][0]["strays"])) == (102, 3)
    assert SICK.rows()[1] == ("2", "127.0.0.1:9192", "", "controller", "0", "1", "?", "?")
    fields = SICK.fields()
    assert fields["offline"][0] == {"topic": "orders", "partition": 1}
    assert [(one["answers"], one["log_bytes"], one["free_bytes"]) for one in fields["brokers"]] == [
        (True, 2048, 1 << 30),
        (False, -1, -1),
    ]


def topic(name: str, *partitions: tuple[int, int, int]) -> TopicMetadata:
    """Each partition has a leader, so many replicas, and so many of them in sync."""
    made = tuple(
        PartitionMetadata(index, leader, 0, tuple(range(replicas)), tuple(range(in_sync)), ())
        for index, (leader, replicas, in_sync) in enumerate(partitions)
    )
    return TopicMetadata(name, UUID(int=1), False, made)


def test_partitions_in_trouble_are_told_by_their_replicas_in_sync() -> None:
    replicated = topic("r", (1, 3, 3), (1, 3, 2), (1, 3, 1), (-1, 3, 1))
    alone, pair = topic("alone", (1, 1, 1), (-1, 1, 0)), topic("pair", (1, 2, 2))
    told = TroubledPartitions.among([replicated, alone, pair], {"r": 2, "pair": 3})

    r = [TopicPartition("r", index) for index in range(4)]
    assert told.offline == (r[3], TopicPartition("alone", 1))
    assert told.under_replicated == (r[1], r[2])
    assert told.below_minimum == (r[2],)
    assert told.at_minimum == (r[1], TopicPartition("pair", 0)), "more than there are replicas means all of them"
    assert ClusterView("abc", 1, 0, 0, (ONE,), told).problems[1:] == [
        "2 partitions under-replicated: r-1, r-2",
        "1 partition below the minimum in sync: r-2",
        "2 partitions at the minimum in sync: r-1, pair-0",
    ]


def test_watched_cluster_is_drawn_as_a_table() -> None:
    page = io.StringIO()
    Console(file=page, width=120).print(ClusterLook(SICK, 0).drawn())

    lines = words(page.getvalue())
    assert lines[0].endswith("cluster abc, 1 topic")
    assert lines[2] == "1 127.0.0.1:9092 Ottensen 1 2 2.0 KiB 1.0 GiB"
    assert lines[-1].startswith("7 partitions offline: ")
    assert ClusterLook(SICK, 0).line().startswith("2 brokers, controller 2, 8 partitions, no answer from broker 2, 7 ")


def test_broker_that_does_not_answer_is_not_waited_for() -> None:
    with Broker() as broker, socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
        probe.close()

        async def scenario() -> None:
            async with Cluster(broker.bootstrap) as cluster:
                cluster.view.brokers[9] = NodeEndpoint(9, "127.0.0.1", port, None)
                assert await _directories(Admin(cluster), 9) is None
                assert await _directories(Admin(cluster), 1) is not None

        asyncio.run(scenario())
