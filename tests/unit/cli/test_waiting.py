"""What `barnabas produce` and `consume` say while they wait, and how often."""

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.cli.waiting import REPEAT_SECONDS, ReadingReport, WaitingReport, waiting_reason
from barnabas.client.producing.delivery_status import DeliveryStatus, Obstacle, Problem
from barnabas.net.errors import ChannelClosed, ConnectFailed
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.leaders import NodeEndpoint

ORDERS = TopicPartition("orders", 0)
LEADER = NodeEndpoint(3, "::1", 9092, None)
FULL = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "orders-0: cannot write x.log: No space left on device")


def status(delivered: int, pending: int, problem: Problem | None = FULL) -> DeliveryStatus:
    obstacles = (Obstacle(ORDERS, LEADER, problem),) if pending else ()
    return DeliveryStatus(delivered, 0, pending, obstacles)


def test_line_comes_after_two_seconds_then_seldom_and_when_the_reason_changes() -> None:
    report = WaitingReport(100.0)
    gone = ConnectFailed("no connection to [::1]:9092: Connection refused")
    line = (
        "waiting for broker 3 ([::1]:9092): orders-0: cannot write x.log: No space left on device"
        " (KAFKA_STORAGE_ERROR); 5 records not delivered yet, Ctrl-C gives up"
    )
    assert report.line(status(7, 5), 101.0) is None, "some were delivered just now"
    assert report.line(status(7, 5), 102.9) is None
    assert report.line(status(7, 5), 103.0) == line
    assert report.line(status(7, 6), 103.5) is None
    assert report.line(status(7, 5), 103.0 + REPEAT_SECONDS) == line
    changed = report.line(status(7, 1, gone), 134.0)
    assert changed is not None
    assert changed.startswith("waiting for broker 3: no connection to [::1]:9092: Connection refused; 1 record not")
    assert report.line(status(8, 4), 140.0) == "records are accepted again"
    assert report.line(status(12, 0), 150.0) is None
    assert report.line(status(12, 4), 151.0) is None, "nothing waited before these were sent"


def test_idle_producer_is_silent() -> None:
    report = WaitingReport(0.0)
    assert [report.line(status(0, 0), 60.0 * minute) for minute in range(5)] == [None] * 5


def test_reader_says_each_problem_once_and_when_it_is_over() -> None:
    report = ReadingReport()
    gone = ConnectFailed("no connection to [::1]:9092: Connection refused")
    assert report.line(None) is None
    assert report.line(gone) == "waiting: no connection to [::1]:9092: Connection refused"
    assert report.line(gone) is None
    assert report.line(FULL) == f"waiting: {FULL}"
    assert report.line(None) == "records can be read again"


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (None, "broker 3 ([::1]:9092): no answer yet"),
        (
            KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "orders-0"),
            "broker 3 ([::1]:9092): its disk is full or has failed (KAFKA_STORAGE_ERROR)",
        ),
        (
            KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "orders-0"),
            "broker 3 ([::1]:9092): it does not lead the partition now (NOT_LEADER_OR_FOLLOWER)",
        ),
        (
            KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED),
            "broker 3 ([::1]:9092): THROTTLING_QUOTA_EXCEEDED",
        ),
        (
            ChannelClosed("the connection to [::1]:9092 is closed: the peer closed it"),
            "broker 3: the connection to [::1]:9092 is closed: the peer closed it",
        ),
    ],
)
def test_reason_names_the_broker_and_its_error(problem: Problem | None, words: str) -> None:
    assert waiting_reason((Obstacle(ORDERS, LEADER, problem),)) == words


def test_partition_without_a_leader_is_named() -> None:
    obstacles = (
        Obstacle(TopicPartition("orders", 1), LEADER, None),
        Obstacle(ORDERS, None, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "orders-0 has no leader")),
        Obstacle(TopicPartition("orders", 2), LEADER, None),
    )
    assert waiting_reason(obstacles) == (
        "a leader of orders-0, and for 2 other partitions: orders-0 has no leader (LEADER_NOT_AVAILABLE)"
    )
