"""A history as lines: grouped, in order, and answers where they belong."""

import asyncio
import logging
from random import Random

from barnabas.base.ids import TopicPartition
from barnabas.base.logs import fields
from barnabas.sim.histories.events import (
    Acked,
    AdminCalled,
    AdminDone,
    AdminFailed,
    CommitCalled,
    CommitDone,
    CommittedAsked,
    CommittedSeen,
    Event,
    FinalLog,
    Happened,
    History,
    OperationEnded,
    Owned,
    Positioned,
    ReadFailed,
    SendFailed,
    Sent,
    Shown,
    ShownRecord,
)
from barnabas.sim.runs.log_capture import captured_logs
from barnabas.sim.runs.story import Kind, StoryLine, tell, tell_end
from barnabas.sim.world.loop import VirtualLoop
from barnabas.sim.world.process import Process

PARTITION = TopicPartition("flushed", 0)
OTHER = TopicPartition("plain", 1)


def sent(at: float, number: int, partition: TopicPartition = PARTITION) -> Sent:
    return Sent(at, "producer-1", partition, None, b"", -1, True, number)


def acked(at: float, number: int, offset: int) -> Acked:
    return Acked(at, "producer-1", PARTITION, offset, number)


def shown(at: float, first: int, following: int, epoch: int = 1, partition: TopicPartition = PARTITION) -> Shown:
    records = tuple(ShownRecord(offset, epoch, None, b"") for offset in range(first, following))
    return Shown(at, "reader-1", partition, first, following, following, records)


def texts(*events: Event) -> list[str]:
    return [f"{line.at:g} {line.who}: {line.text}" for line in tell(History(list(events)))]


def test_records_of_one_operation_are_one_line_with_their_answers() -> None:
    assert texts(
        *(sent(3.5, number) for number in range(5, 10)),
        *(acked(3.512, number, number + 12) for number in range(5, 10)),
        OperationEnded(3.512, "producer-1", "send", 0.012),
        sent(4.0, 11),
        acked(4.0, 11, 22),
    ) == [
        "3.5 producer-1: sent records 5-9 to flushed-0 with acks=all, idempotent: acked at offsets 17-21 after 0.012 s",
        "4 producer-1: sent record 11 to flushed-0: acked at offset 22",
    ]


def test_answer_after_a_fault_has_a_line_of_its_own() -> None:
    assert texts(
        sent(1.0, 1),
        sent(1.0, 2),
        acked(1.1, 1, 0),
        Happened(1.2, "broker-1", "power loss"),
        acked(1.9, 2, 1),
    ) == [
        "1 producer-1: sent records 1-2 to flushed-0 with acks=all, idempotent: acked at offset 0 after 0.100 s; "
        "1 answered later",
        "1.2 broker-1: power loss",
        "1.9 producer-1: record 2, sent to flushed-0 at 1.000 s: acked at offset 1 after 0.900 s",
    ]


def test_failed_and_unanswered_records_are_told() -> None:
    assert texts(sent(1.0, 1), sent(1.0, 2), sent(1.0, 3), SendFailed(2.0, "producer-1", 1, "too late")) == [
        "1 producer-1: sent records 1-3 to flushed-0 with acks=all, idempotent: 1 failed: too late; 2 never answered"
    ]


def test_runs_without_a_gap_are_one_line_and_a_gap_begins_another() -> None:
    assert texts(
        shown(1.0, 0, 5),
        shown(1.1, 0, 2, partition=OTHER),
        shown(1.2, 5, 8, epoch=2),
        shown(1.3, 10, 11),
        shown(1.4, 11, 11),
    ) == [
        "1 reader-1: read flushed-0 from offset 0 to 8: 8 records of epochs 1-2, high watermark 8, until 1.200 s",
        "1.1 reader-1: read plain-1 from offset 0 to 2: 2 records of epoch 1, high watermark 2",
        "1.3 reader-1: read flushed-0 from offset 10 to 11: 1 record of epoch 1, high watermark 11, until 1.400 s",
    ]


def test_reads_before_and_after_a_fault_are_apart() -> None:
    lines = texts(shown(1.0, 0, 5), Happened(1.1, "broker-1", "kill"), shown(1.2, 5, 6))

    assert [line.partition(":")[0] for line in lines] == ["1 reader-1", "1.1 broker-1", "1.2 reader-1"]


def test_empty_run_is_not_told() -> None:
    assert texts(shown(1.0, 5, 5)) == []


def test_positions_and_failures_of_reading_are_grouped() -> None:
    assert texts(
        Positioned(1.0, "reader-1", PARTITION, 0),
        Positioned(1.0, "reader-1", OTHER, 0),
        ReadFailed(2.0, "reader-1", "no broker"),
        ReadFailed(2.5, "reader-1", "no broker"),
    ) == ["1 reader-1: reads flushed-0, plain-1 from offset 0", "2 reader-1: could not read: no broker (2 times)"]


def test_group_and_its_commits_are_told() -> None:
    assert texts(
        Owned(1.0, "member-1", "group-1", "id", 3, (PARTITION, OTHER)),
        CommitCalled(1.1, "member-1", "group-1", ((PARTITION, 17),), 1),
        CommitDone(1.2, "member-1", 1),
        CommittedAsked(1.3, "admin", "group-1", 2),
        CommittedSeen(1.3, "admin", "group-1", ((PARTITION, 17), (OTHER, 0)), 2),
        Owned(1.4, "member-1", "group-1", "id", 4, ()),
    ) == [
        "1 member-1: owns flushed-0, plain-1 in generation 3 of group-1",
        "1.1 member-1: committed flushed-0 at 17 for group-1: done after 0.100 s",
        "1.3 admin: asked what group-1 has committed: flushed-0 at 17, plain-1 at 0",
        "1.4 member-1: owns nothing in generation 4 of group-1",
    ]


def test_admin_calls_are_told_with_their_results() -> None:
    arguments = (("topic", "a"), ("configs", (("retention.ms", "1"),)))
    assert texts(
        AdminCalled(1.0, "admin", "create_topic", arguments, 1),
        AdminDone(1.0, "admin", 1, 3),
        AdminCalled(2.0, "admin", "delete_topic", (("topic", "a"),), 2),
        Happened(2.1, "broker-1", "cut", "both"),
        AdminFailed(2.5, "admin", 2, "timed out"),
        AdminCalled(3.0, "admin", "describe", (), 3),
    ) == [
        "1 admin: create_topic(topic=a, retention.ms=1): done: 3",
        "2 admin: delete_topic(topic=a): answered later",
        "2.1 broker-1: cut: both",
        "2.5 admin: delete_topic(topic=a) of 2.000 s: failed: timed out",
        "3 admin: describe(): never answered",
    ]


def test_long_operation_is_told() -> None:
    ended = [OperationEnded(20.0, "admin", name, seconds) for name, seconds in (("describe", 9.0), ("committed", 11.0))]

    assert texts(*ended) == ["20 admin: committed took 11.0 s"]


def test_log_lines_stand_among_the_events() -> None:
    logged = StoryLine(1.05, "broker-1", "INFO    opened\nthe trace", Kind.LOG)
    history = History([Happened(1.0, "broker-1", "start"), Happened(1.1, "broker-1", "stop")])

    assert [str(line) for line in tell(history, [logged])] == [
        "    1.000 s  broker-1    start",
        "    1.050 s  broker-1    INFO    opened\n                         the trace",
        "    1.100 s  broker-1    stop",
    ]


def test_end_says_what_the_partitions_hold() -> None:
    final = {OTHER: FinalLog(2, 3, (ShownRecord(2, 1, None, b""),)), PARTITION: FinalLog(0, 0, ())}

    assert tell_end(History(final=final, is_complete=True)) == [
        "at the end flushed-0 holds offsets 0 to 0: 0 records",
        "at the end plain-1 holds offsets 2 to 3: 1 record",
    ]
    assert tell_end(History()) == ["the history did not come to its end"]


def test_captured_log_lines_have_virtual_time_and_node() -> None:
    logger = logging.getLogger("barnabas.test_story")
    loop = VirtualLoop(Random(1), 100.0)

    async def work() -> None:
        await asyncio.sleep(7.5)
        logger.info("opened", extra=fields(topic="a"))

    async def history() -> None:
        await loop.create_task(work(), context=Process("broker-1/2").context())
        logger.warning("over")

    with captured_logs() as lines:
        logger.info("before there is a loop")
        loop.run_until_complete(history())
        loop.close()

    told = [(line.at, line.who, line.text) for line in lines if "selector" not in line.text]
    assert told == [(7.5, "broker-1", "INFO    opened  topic=a"), (7.5, "simulation", "WARNING over")]
