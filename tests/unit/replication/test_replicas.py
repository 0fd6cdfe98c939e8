"""The partitions that a broker leads: as the newest image says, and at once where their logs are there."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from uuid import UUID

import pytest

from barnabas.base.errors import DiskFailed, DiskFull
from barnabas.base.ids import TopicPartition
from barnabas.metadata.image import BrokerChanged, RegisteredBroker
from barnabas.metadata.image import Partition as PartitionImage
from barnabas.metadata.znodes import Endpoint
from barnabas.replication.leader import CommittedState
from barnabas.replication.partition import Partition
from barnabas.replication.topic_removal import SLICE_LENGTH
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.leaders import NO_LEADER, LeaderAndEpoch, NodeEndpoint
from tests.support.led_partition import Told
from tests.support.log_directories import append, make_batch
from tests.support.network import run
from tests.support.replicas_scene import BROKER, BROKER_EPOCH, ORDERS_ID, OTHER, OTHER_ID, ReplicasScene, led, topic

ORDERS = TopicPartition("orders", 0)
OLD_EPOCH = BROKER_EPOCH - 1
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def scenario(main: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    if main.__code__.co_argcount == 0:

        def test() -> None:
            run(main())

        test.__name__, test.__doc__ = main.__name__, main.__doc__
        return test

    def test_with_log(caplog: pytest.LogCaptureFixture) -> None:
        run(main(caplog))

    test_with_log.__name__, test_with_log.__doc__ = main.__name__, main.__doc__
    return test_with_log


def old(index: int) -> PartitionImage:
    """Only this broker has it, and led it before its last start."""
    return led(index, replicas=(BROKER,), broker_epoch=OLD_EPOCH)


def send(partition: Partition, acks: int = 1) -> Told:
    appended = partition.append(make_batch([b"value"]))
    told = Told()
    partition.when_committed(appended.last_offset, acks, float("inf"), told)
    return told


def refusal(scene: ReplicasScene, name: str | bytes = "orders", index: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        scene.replicas.find(name, index)
    return caught.value.code


# -- finding -------------------------------------------------------------------------------------------------------


@scenario
async def test_partition_is_found_by_name_and_by_the_bytes_of_its_id() -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic(led(0), led(1, leader=OTHER))))
    partition = scene.replicas.find("orders", 0)
    assert partition is scene.replicas.find(ORDERS_ID.bytes, 0) is scene.replicas.find("orders", 0)
    assert (partition.name, partition.topic_id, partition.is_internal) == (ORDERS, ORDERS_ID, False)
    assert refusal(scene, "orders", 1) == refusal(scene, ORDERS_ID.bytes, 1) == NOT_LEADER
    for index in (2, -1):
        assert refusal(scene, "orders", index) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(scene, "letters") == refusal(scene, "") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(scene, OTHER_ID.bytes) == refusal(scene, bytes(16)) == ErrorCode.UNKNOWN_TOPIC_ID


@scenario
async def test_leader_is_known_by_name_and_by_id() -> None:
    scene = ReplicasScene()
    other = RegisteredBroker(OTHER, 1, (Endpoint("PLAINTEXT", "PLAINTEXT", "other", 9092),), rack="b")
    image = scene.with_topics(topic(led(0, leader=OTHER, epoch=4))).apply([BrokerChanged(other)])
    await scene.apply(image)
    leader = scene.replicas.leader_of("orders", 0)
    assert leader == scene.replicas.leader_of(ORDERS_ID.bytes, 0) == LeaderAndEpoch(OTHER, 4)
    assert scene.replicas.leader_of("orders", 1) is scene.replicas.leader_of(OTHER_ID.bytes, 0) is NO_LEADER
    assert scene.replicas.endpoints_of([leader, leader], "PLAINTEXT") == [NodeEndpoint(OTHER, "other", 9092, "b")]


@scenario
async def test_internal_topic_is_known_as_one() -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic(name="__consumer_offsets")))
    assert scene.replicas.find("__consumer_offsets", 0).is_internal


# -- leadership ----------------------------------------------------------------------------------------------------


@scenario
async def test_image_says_everything_about_a_leadership() -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic(led(epoch=3, isr=(BROKER, OTHER), partition_epoch=7))))
    partition = scene.replicas.find("orders", 0)
    isr = dict.fromkeys((BROKER, OTHER), BROKER_EPOCH)
    assert (partition.leader, partition.leader_epoch) == (BROKER, 3)
    assert partition.state == CommittedState(7, isr, 1, (BROKER, OTHER))
    scene.replicas.follow(scene.with_topics(topic(led(epoch=3, isr=(BROKER,), partition_epoch=8))))
    assert scene.replicas.find("orders", 0) is partition, "the leadership goes on"
    assert partition.state == CommittedState(8, {BROKER: BROKER_EPOCH}, 1, (BROKER, OTHER))


@scenario
async def test_leadership_that_goes_elsewhere_ends_while_the_image_is_told() -> None:
    """Rule 10: nothing is awaited, what waits is answered, and what is staged is not written."""
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic(led(isr=(BROKER, OTHER)))))
    partition = scene.replicas.find("orders", 0)
    uncommitted = send(partition, acks=-1)
    await asyncio.sleep(0)
    staged = send(partition)
    scene.replicas.follow(scene.with_topics(topic(led(leader=OTHER, epoch=1, isr=(BROKER, OTHER)))))
    assert (uncommitted.outcome, staged.outcome) == (NOT_LEADER, NOT_LEADER)
    assert partition.is_closed
    assert refusal(scene) == refusal(scene, ORDERS_ID.bytes) == NOT_LEADER
    assert scene.replicas.leader_of("orders", 0) == LeaderAndEpoch(OTHER, 1)
    await asyncio.sleep(0)
    log = scene.manager.get(ORDERS)
    assert log is not None
    assert log.end_offset == 1


@scenario
async def test_leadership_that_comes_back_is_taken_at_once_and_is_another_one() -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic()))
    before = scene.replicas.find("orders", 0)
    scene.replicas.follow(scene.with_topics(topic(led(leader=OTHER, epoch=1))))
    scene.replicas.follow(scene.with_topics(topic(led(epoch=2))))
    after = scene.replicas.find("orders", 0)
    assert (after.leader_epoch, before.is_closed, after.is_closed) == (2, True, False)


@scenario
async def test_later_epoch_of_this_broker_is_another_leadership() -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic()))
    before = scene.replicas.find("orders", 0)
    staged = send(before)
    scene.replicas.follow(scene.with_topics(topic(led(epoch=1))))
    after = scene.replicas.find("orders", 0)
    assert (staged.outcome, before.is_closed) == (NOT_LEADER, True)
    told = send(after)
    await asyncio.sleep(0)
    assert (told.outcome, after.end_offset) == ("committed", 1)


@scenario
async def test_partitions_that_have_not_changed_are_not_touched() -> None:
    scene = ReplicasScene()
    image = scene.with_topics(topic(led(0), led(1)), topic(name="letters", topic_id=OTHER_ID))
    await scene.apply(image)
    served = {partition.name: partition for partition in scene.replicas}
    moved = image.topics["orders"].with_partitions([led(1, leader=OTHER, epoch=1)])
    scene.replicas.follow(scene.with_topics(moved))
    del served[TopicPartition("orders", 1)]
    assert {partition.name: partition for partition in scene.replicas} == served
    assert not any(partition.is_closed for partition in served.values())


@scenario
async def test_log_that_is_made_for_an_image_that_is_old_by_then_is_not_led() -> None:
    scene = ReplicasScene()
    scene.run()
    await scene.apply(scene.image)
    scene.replicas.follow(scene.with_topics(topic(led(0), led(1))))
    while not scene.workers.jobs:  # noqa: ASYNC110 - the logs are on their way
        await asyncio.sleep(0)
    newest = scene.with_topics(topic(led(0, leader=OTHER, epoch=1), led(1, epoch=1)))
    scene.replicas.follow(newest)
    await scene.until_served(newest)
    assert refusal(scene, "orders", 0) == NOT_LEADER
    assert scene.replicas.find("orders", 1).leader_epoch == 1
    assert scene.manager.get(ORDERS) is not None, "its log is there, for a follower"
    await scene.stop()


@scenario
async def test_leadership_that_goes_while_the_first_image_is_brought_about_ends_at_once() -> None:
    scene = ReplicasScene()
    for index in range(2 * SLICE_LENGTH):
        scene.manager.create(TopicPartition("orders", index), ORDERS_ID, scene.config)
    image = scene.with_topics(topic(*(led(index) for index in range(2 * SLICE_LENGTH))))
    applying = asyncio.ensure_future(scene.replicas.apply(image))
    while (partition := scene.replicas.get("orders", 0)) is None:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    assert scene.replicas.get("orders", 2 * SLICE_LENGTH - 1) is None, "the others have their turn later"
    moved = image.topics["orders"].with_partitions([led(0, leader=OTHER, epoch=1)])
    scene.replicas.follow(scene.with_topics(moved))
    assert partition.is_closed
    await scene.let_go_on(applying)
    assert refusal(scene) == NOT_LEADER


@scenario
async def test_deleted_topic_is_not_served_from_the_moment_on_and_its_files_follow() -> None:
    scene = ReplicasScene()
    scene.run()
    await scene.apply(scene.with_topics(topic()))
    partition = scene.replicas.find("orders", 0)
    staged = send(partition)
    scene.deletions.deleted.add(ORDERS_ID)
    gone = scene.without("orders")
    scene.replicas.follow(gone)
    assert (staged.outcome, partition.is_closed) == (NOT_LEADER, True)
    assert refusal(scene) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(scene, ORDERS_ID.bytes) == ErrorCode.UNKNOWN_TOPIC_ID
    assert scene.manager.get(ORDERS) is not None
    await scene.until_served(gone)
    assert scene.manager.get(ORDERS) is None
    assert scene.deletions.confirmed == [ORDERS_ID]
    await scene.stop()


@scenario
async def test_topic_that_was_deleted_while_the_session_is_lost_is_removed_when_there_is_another() -> None:
    scene = ReplicasScene()
    scene.run()
    await scene.apply(scene.with_topics(topic()))
    scene.deletions.deleted.add(ORDERS_ID)
    scene.deletions.is_lost = True
    await scene.apply(scene.without("orders"))
    assert scene.manager.get(ORDERS) is not None
    await retried(scene, 0)
    assert scene.manager.get(ORDERS) is not None
    assert scene.deletions.confirmed == []

    scene.deletions.is_lost = False
    await retried(scene, 60_000)
    assert scene.manager.get(ORDERS) is None
    assert scene.deletions.confirmed == [ORDERS_ID]
    scene.replicas.retry(120_000)
    assert scene.replicas.coming is scene.replicas.image, "nothing is left to look at"
    await scene.stop()


async def retried(scene: ReplicasScene, now_ms: int) -> None:
    scene.replicas.retry(now_ms)
    again = scene.replicas.coming
    assert again is not scene.replicas.image
    await scene.until_served(again)


@scenario
async def test_topic_made_again_while_the_session_is_lost_takes_nothing_of_the_old_one() -> None:
    """Whether the old one was deleted is for the next start: its files are set aside, and the record stays."""
    scene = ReplicasScene()
    scene.run()
    await scene.apply(scene.with_topics(topic()))
    send(scene.replicas.find("orders", 0))
    await asyncio.sleep(0)
    scene.deletions.deleted.add(ORDERS_ID)
    scene.deletions.is_lost = True
    await scene.apply(scene.without("orders"))
    await scene.apply(scene.with_topics(topic(topic_id=OTHER_ID)))
    after = scene.replicas.find(OTHER_ID.bytes, 0)
    assert after.end_offset == 0
    scene.deletions.is_lost = False
    await scene.apply(scene.with_topics(topic(name="more", topic_id=UUID(int=3))))
    assert scene.replicas.find("orders", 0) is after
    assert scene.deletions.confirmed == []
    await scene.stop()


@scenario
async def test_topic_that_is_made_again_under_another_id_is_another_partition() -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic()))
    before = scene.replicas.find("orders", 0)
    send(before)
    await asyncio.sleep(0)
    scene.deletions.deleted.add(ORDERS_ID)
    await scene.apply(scene.with_topics(topic(topic_id=OTHER_ID)))
    after = scene.replicas.find(OTHER_ID.bytes, 0)
    assert (before.is_closed, after.end_offset) == (True, 0)
    assert refusal(scene, ORDERS_ID.bytes) == ErrorCode.UNKNOWN_TOPIC_ID


@scenario
async def test_settings_that_change_are_swapped_in() -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic(led(isr=(BROKER,)))))
    scene.config = replace(scene.config, min_insync_replicas=2)
    await scene.apply(replace(scene.image, topic_configs={"orders": {"min.insync.replicas": "2"}}))
    with pytest.raises(KafkaError) as caught:
        scene.replicas.find("orders", 0).check_in_sync()
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


@scenario
async def test_log_that_is_being_cut_is_led_when_that_is_done() -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic()))
    for _ in range(3):
        send(scene.replicas.find("orders", 0))
    await asyncio.sleep(0)
    scene.replicas.follow(scene.with_topics(topic(led(leader=OTHER, epoch=1))))
    cutting = asyncio.ensure_future(scene.replicas.truncate(ORDERS, 1))
    while not scene.workers.jobs:  # noqa: ASYNC110 - the cut is on its way
        await asyncio.sleep(0)
    scene.replicas.follow(scene.with_topics(topic(led(epoch=2))))
    assert refusal(scene) == NOT_LEADER, "not yet"
    await scene.let_go_on(cutting)
    partition = scene.replicas.find("orders", 0)
    assert (partition.leader_epoch, partition.end_offset, partition.high_watermark) == (2, 1, 1)


@scenario
async def test_cut_that_fails_is_told() -> None:
    scene = ReplicasScene()
    log = scene.manager.create(ORDERS, ORDERS_ID, scene.config)
    append(log, b"one", b"two")
    await scene.apply(scene.with_topics(topic(led(leader=OTHER))))
    scene.disk.fail(5, operations=["write"])
    cutting = asyncio.ensure_future(scene.replicas.truncate(ORDERS, 1))
    with pytest.raises(DiskFailed):
        await scene.let_go_on(cutting)


# -- resigning -----------------------------------------------------------------------------------------------------


@scenario
async def test_resigned_leadership_is_over_and_not_taken_again_before_a_later_epoch() -> None:
    scene = ReplicasScene()
    image = scene.with_topics(topic(led(0), led(1, leader=OTHER)))
    await scene.apply(image)
    staged = send(scene.replicas.find("orders", 0))
    scene.replicas.resign_all()
    assert staged.outcome == NOT_LEADER
    assert refusal(scene) == refusal(scene, ORDERS_ID.bytes) == NOT_LEADER
    scene.replicas.registered(BROKER_EPOCH)
    await scene.apply(scene.with_topics(topic(led(0, partition_epoch=1), led(1, leader=OTHER))))
    assert refusal(scene) == NOT_LEADER, "the same epoch, told again"
    scene.replicas.follow(scene.with_topics(topic(led(0, epoch=1), led(1, leader=OTHER))))
    assert scene.replicas.find("orders", 0).leader_epoch == 1


@scenario
async def test_leadership_that_is_resigned_before_its_log_is_there_is_not_taken() -> None:
    scene = ReplicasScene()
    scene.run()
    await scene.apply(scene.image)
    image = scene.with_topics(topic())
    scene.replicas.follow(image)
    while not scene.workers.jobs:  # noqa: ASYNC110 - its log is on its way
        await asyncio.sleep(0)
    scene.replicas.resign_all()
    await scene.until_served(image)
    assert refusal(scene) == NOT_LEADER
    await scene.stop()


@scenario
async def test_epochs_of_before_the_start_can_only_be_read_in() -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic(*[old(index) for index in (0, 1)], led(2, broker_epoch=OLD_EPOCH))))
    assert [refusal(scene, "orders", index) for index in (0, 1, 2)] == [NOT_LEADER] * 3
    scene.replicas.serve_ungranted(DiskFull("write", "metadata", OSError(28, "no space")))
    for index in (0, 1):
        with pytest.raises(DiskFull):
            scene.replicas.find("orders", index).append(make_batch([b"value"]))
    assert refusal(scene, "orders", 2) == NOT_LEADER, "another replica may lead it"
    granted = led(0, epoch=1, replicas=(BROKER,))
    scene.replicas.follow(scene.with_topics(topic(granted, old(1), led(2, broker_epoch=OLD_EPOCH))))
    scene.replicas.find("orders", 0).append(make_batch([b"value"]))
    with pytest.raises(DiskFull):
        scene.replicas.find("orders", 1).append(make_batch([b"value"]))


@scenario
async def test_leadership_is_that_of_one_registration() -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic(led(0, epoch=3))))
    scene.replicas.find("orders", 0)
    scene.replicas.resign_all()
    scene.replicas.registered(BROKER_EPOCH + 1)
    assert refusal(scene) == NOT_LEADER
    scene.replicas.follow(scene.with_topics(topic(led(0, epoch=4))))
    assert refusal(scene) == NOT_LEADER, "granted to the registration before"
    scene.replicas.follow(scene.with_topics(topic(led(0, epoch=5, broker_epoch=BROKER_EPOCH + 1))))
    assert scene.replicas.find("orders", 0).leader_epoch == 5


@scenario
async def test_grant_may_come_before_the_broker_knows_of_its_registration() -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic(led(0, broker_epoch=BROKER_EPOCH + 1))))
    assert refusal(scene) == NOT_LEADER
    assert not scene.replicas.is_granted_all(scene.image)
    scene.replicas.registered(BROKER_EPOCH + 1)
    scene.replicas.find("orders", 0)
    assert scene.replicas.is_granted_all(scene.image)


# -- disks ---------------------------------------------------------------------------------------------------------


@scenario
async def test_flush_that_a_topic_asks_for_is_told_to_its_partition() -> None:
    scene = ReplicasScene()
    scene.config = replace(scene.config, flush_messages=1)
    await scene.apply(scene.with_topics(topic()))
    told = [send(scene.replicas.find("orders", 0), acks) for acks in (1, -1)]
    await asyncio.sleep(0)
    assert [one.outcome for one in told] == ["waiting"] * 2
    await scene.let_go_on(asyncio.ensure_future(scene.flusher.drain()))
    assert [one.outcome for one in told] == ["committed"] * 2
    await scene.stop()


@scenario
async def test_two_flushes_of_a_log_never_run_at_once() -> None:
    """Housekeeping's, and the one that a producer waits for."""
    scene = ReplicasScene()
    scene.config = replace(scene.config, flush_messages=2, flush_ms=1000)
    await scene.apply(scene.with_topics(topic()))
    partition = scene.replicas.find("orders", 0)
    first = send(partition)
    await asyncio.sleep(0)
    assert first.outcome == "committed"
    scene.clock.advance(2000)
    [housekeeping] = [one for one in scene.manager.due_work(scene.clock.steady_ms()) if "flush" in str(one.title)]
    waiting = [send(partition), send(partition)]
    await asyncio.sleep(0)
    assert not scene.workers.jobs, "the log has a flush under way"
    housekeeping.run()
    housekeeping.finish()
    assert [one.outcome for one in waiting] == ["waiting"] * 2
    await scene.let_go_on(asyncio.ensure_future(scene.flusher.drain()))
    assert [one.outcome for one in waiting] == ["committed"] * 2
    await scene.stop()


@scenario
async def test_directory_that_fails_is_told_to_all_its_partitions() -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic(led(0), led(1))))
    told = [send(scene.replicas.find("orders", index)) for index in (0, 1)]
    scene.disk.fail(5, operations=["write"])
    await asyncio.sleep(0)
    assert [one.outcome for one in told] == [DiskFailed] * 2
    assert refusal(scene) == ErrorCode.KAFKA_STORAGE_ERROR


@scenario
async def test_log_that_is_gone_though_its_partition_was_led_before_is_said_loudly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic(led(0, epoch=2), led(1, epoch=2), led(2, epoch=1), led(3, epoch=0))))
    [line] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "partitions that this broker led before have no log and are created empty: 2" in line.getMessage()
    assert "orders-0" in line.getMessage()


@scenario
async def test_log_that_is_gone_and_that_others_have_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    scene = ReplicasScene()
    await scene.apply(scene.with_topics(topic(led(0, leader=OTHER, epoch=2, isr=(OTHER, BROKER)))))
    [line] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.getMessage() == (
        "replicas that were in sync have no log, and are fetched from their leaders: 1, the first is orders-0"
    )


@scenario
async def test_log_that_a_checkpoint_knows_and_that_is_gone_is_said_loudly(caplog: pytest.LogCaptureFixture) -> None:
    first = ReplicasScene()
    log = first.manager.create(ORDERS, ORDERS_ID, first.config)
    append(log, b"one", b"two")
    first.manager.close()
    first.disk.remove_tree("/a/orders-0")
    scene = ReplicasScene(first.disk)
    await scene.apply(scene.with_topics(topic(led(epoch=1))))
    [line] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "orders-0" in line.getMessage()


@scenario
async def test_new_partitions_and_replicas_begin_empty_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    scene = ReplicasScene()
    await scene.apply(scene.image)
    await scene.apply(scene.with_topics(topic(led(0))))
    await scene.apply(scene.with_topics(topic(led(0), led(1))))
    await scene.apply(scene.with_topics(topic(name="moved", topic_id=UUID(int=9)), topic(led(0), led(1))))
    joins = topic(led(0, leader=OTHER, epoch=7, isr=(OTHER,)), name="joins", topic_id=UUID(int=8))
    later = ReplicasScene()
    await later.apply(later.with_topics(joins))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
