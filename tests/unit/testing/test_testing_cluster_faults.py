"""Brokers of a cluster stop, die, pause, lose their sessions or each other: the others go on, and they come back."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas.broker.app import STOP_GRACE_SECONDS
from barnabas.controller import seat
from barnabas.metadata.znodes import DELETED_TOPICS
from barnabas.testing import Cluster, ClusterBroker
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.unit.testing.cluster_requests import (
    another,
    create,
    fill,
    image_of,
    images_are_equal,
    led_by,
    metadata,
    partition_in,
    served,
)

PARTITIONS = 12


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as one:
        yield one


@pytest.fixture
def orders(cluster: Cluster) -> Cluster:
    """With a topic that has one record in each partition."""
    cluster.create_topic("orders", PARTITIONS)
    fill(cluster, "orders", PARTITIONS)
    return cluster


def all_values(cluster: Cluster, topic: str = "orders") -> list[bytes | None]:
    return [one.value for one in cluster.records(topic)]


NUMBERS = [str(index).encode() for index in range(PARTITIONS)]

LEAVING = pytest.mark.parametrize("leave", [ClusterBroker.stop, ClusterBroker.kill], ids=["stop", "kill"])
Leave = Callable[[ClusterBroker], None]


# Stopped and killed


@LEAVING
def test_broker_that_is_gone_leaves_its_partitions_without_a_leader(orders: Cluster, leave: Leave) -> None:
    gone = another(orders, orders.controller)
    lost = led_by(orders, "orders", gone)

    leave(gone)

    for broker in orders:
        if broker is gone:
            continue
        assert gone.id not in image_of(broker).brokers
        [topic] = metadata(broker, "orders").topics
        codes = {one.partition_index: ErrorCode(one.error_code) for one in topic.partitions}
        assert [index for index, code in codes.items() if code is ErrorCode.LEADER_NOT_AVAILABLE] == lost
        assert all(code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE) for code in codes.values())
    assert [orders.leader_of("orders", index) for index in lost] == [None] * len(lost)
    with pytest.raises(KafkaError, match="has no leader now"):
        orders.append("orders", [b"late"], partition=lost[0])
    others = [index for index in range(PARTITIONS) if index not in lost]
    assert [orders.append("orders", [b"more"], partition=index) for index in others] == [1] * len(others)


@LEAVING
def test_broker_that_comes_back_leads_its_partitions_in_a_later_epoch(orders: Cluster, leave: Leave) -> None:
    gone = another(orders, orders.controller)
    lost = led_by(orders, "orders", gone)
    address, before = gone.bootstrap, [partition_in(gone, "orders", index).leader_epoch for index in lost]

    leave(gone)
    gone.start()

    assert gone.bootstrap == address
    assert all_values(orders) == NUMBERS
    after = [partition_in(gone, "orders", index).leader_epoch for index in lost]
    assert all(new > old for old, new in zip(before, after, strict=True))
    assert led_by(orders, "orders", gone) == lost
    assert images_are_equal(orders)


def _leave_and_come_back(leave: Leave) -> Leave:
    def act(broker: ClusterBroker) -> None:
        leave(broker)
        broker.start()

    return act


@pytest.mark.parametrize(
    "come_back",
    [_leave_and_come_back(ClusterBroker.stop), _leave_and_come_back(ClusterBroker.kill), ClusterBroker.expire_session],
    ids=["stop", "kill", "expire"],
)
def test_broker_that_registers_again_says_that_its_logs_are_intact(orders: Cluster, come_back: Leave) -> None:
    broker = another(orders, orders.controller)
    first = image_of(orders.controller).brokers[broker.id]
    assert (first.previous_epoch, first.intact_since) == (None, None)
    come_back(broker)
    second = image_of(orders.controller).brokers[broker.id]
    assert (second.previous_epoch, second.intact_since) == (first.epoch, first.epoch)
    come_back(broker)
    third = image_of(orders.controller).brokers[broker.id]
    assert (third.previous_epoch, third.intact_since) == (second.epoch, first.epoch)


@LEAVING
def test_another_broker_becomes_the_controller(orders: Cluster, leave: Leave) -> None:
    for number in range(6):
        gone = orders.controller
        leave(gone)
        now = orders.controller
        assert now is not gone
        assert create(another(orders, now), f"made{number}") is ErrorCode.NONE
        assert images_are_equal(orders)
        gone.start()
        assert orders.controller is now
        assert images_are_equal(orders)
        assert all(image_of(broker).controller_id == now.id for broker in orders)
    assert all_values(orders) == NUMBERS


def test_controller_that_stops_answers_the_brokers_that_wait_for_changes(cluster: Cluster) -> None:
    """Otherwise it waits for their long polls, until it gives them up."""
    began = time.monotonic()
    cluster.controller.stop()
    assert time.monotonic() - began < STOP_GRACE_SECONDS


def test_last_broker_serves_alone(orders: Cluster) -> None:
    orders[1].stop()
    orders[2].kill()

    assert orders.controller is orders[3]
    kept = led_by(orders, "orders", orders[3])
    assert [one.partition for one in orders.records("orders")] == kept
    orders.create_topic("more", 3)
    assert led_by(orders, "more", orders[3]) == [0, 1, 2]

    orders.start()
    assert all_values(orders) == NUMBERS
    assert images_are_equal(orders)


def test_all_brokers_restart(orders: Cluster) -> None:
    addresses, ids = orders.bootstrap, {name: one.id for name, one in image_of(orders[1]).topics.items()}

    for _ in range(3):
        orders.restart()
        assert orders.bootstrap == addresses
        assert {name: one.id for name, one in image_of(orders[1]).topics.items()} == ids
        assert all_values(orders) == NUMBERS

    for broker in orders:
        broker.kill()
    orders.start()
    assert all_values(orders) == NUMBERS


def test_brokers_that_leave_and_come_back_together_end_with_one_image(orders: Cluster) -> None:
    """One after the other in each thread, all three threads at once."""

    def live(broker: ClusterBroker) -> None:
        for leave in (ClusterBroker.stop, ClusterBroker.kill, ClusterBroker.restart):
            leave(broker)
            if not broker.is_running:
                broker.start()

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(live, broker) for broker in orders]:
            done.result()

    assert images_are_equal(orders)
    assert all_values(orders) == NUMBERS


# Topics that change while a broker is away


@LEAVING
def test_topic_that_was_deleted_meanwhile_is_gone_from_a_broker_that_comes_back(orders: Cluster, leave: Leave) -> None:
    away = another(orders, orders.controller)
    assert list(away.data_directory.glob("orders-*"))
    leave(away)
    orders.delete_topic("orders")

    away.start()

    assert "orders" not in image_of(away).topics
    assert served(away).replicas.get("orders", 0) is None
    until(lambda: not list(away.data_directory.glob("orders-*")))
    assert images_are_equal(orders)


@LEAVING
def test_topic_that_was_made_again_meanwhile_has_its_new_id_and_no_old_record(orders: Cluster, leave: Leave) -> None:
    away = another(orders, orders.controller)
    old = image_of(away).topics["orders"].id
    leave(away)
    orders.delete_topic("orders")
    away_id = away.id
    orders.create_topic("orders", 4)
    new = image_of(orders.controller).topics["orders"].id
    assert new != old

    away.start()

    assert image_of(away).topics["orders"].id == new
    assert all_values(orders) == []
    assert away_id not in {one.leader for one in image_of(away).topics["orders"].partitions}
    orders.create_topic("more", 3)
    assert led_by(orders, "more", away) != []
    fill(orders, "orders", 4)
    assert all_values(orders) == NUMBERS[:4]


def test_topics_made_grown_and_configured_meanwhile_are_known_to_a_broker_that_comes_back(orders: Cluster) -> None:
    away = another(orders, orders.controller)
    away.stop()
    orders.create_topic("more", 3, {"retention.ms": -1})

    away.start()

    assert len(image_of(away).topics["more"].partitions) == 3
    assert image_of(away).configs_of_topic("more") == {"retention.ms": "-1"}


def test_broker_without_replicas_learns_late_of_a_deleted_topic_and_says_nothing_of_lost_metadata(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    late = another(cluster, cluster.controller)
    late.stop()
    cluster.create_topic("orders", 4)  # on the others
    late.start()
    cluster.cut(late.id, cluster.controller.id)
    cluster.delete_topic("orders")
    until(lambda: deleted_topics(cluster) == [])

    cluster.heal()

    assert "orders" not in image_of(late).topics
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


# Sessions that are lost


def epochs_of(cluster: Cluster, broker: ClusterBroker) -> list[int]:
    return [one.leader_epoch for one in image_of(broker).topics["orders"].partitions if one.leader == broker.id]


@pytest.mark.parametrize("who", ["controller", "follower"])
def test_broker_whose_session_expires_comes_back_with_another(orders: Cluster, who: str) -> None:
    for _ in range(3):
        broker = orders.controller if who == "controller" else another(orders, orders.controller)
        broker_epoch = served(broker).running.cluster.seat.broker_epoch
        led, leader_epochs = led_by(orders, "orders", broker), epochs_of(orders, broker)

        broker.expire_session()

        assert served(broker).running.cluster.seat.broker_epoch > broker_epoch
        assert led_by(orders, "orders", broker) == led
        assert all(new > old for old, new in zip(leader_epochs, epochs_of(orders, broker), strict=True))
        assert all_values(orders) == NUMBERS
        assert images_are_equal(orders)
    assert orders.append("orders", [b"more"], partition=led[0]) == 1
    assert create(broker, "made") is ErrorCode.NONE


def test_sessions_of_all_brokers_expire(orders: Cluster) -> None:
    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(broker.expire_session) for broker in orders]:
            done.result()

    assert images_are_equal(orders)
    assert all_values(orders) == NUMBERS
    orders.create_topic("more", 3)


# Paused


def connect(broker: ClusterBroker) -> socket.socket:
    host, port = broker.bootstrap.split(":")
    return socket.create_connection((host, int(port)), timeout=10)


API_VERSIONS_V0 = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"


def is_answered(client: socket.socket, seconds: float) -> bool:
    client.settimeout(seconds)
    try:
        return len(client.recv(4, socket.MSG_WAITALL)) == 4
    except TimeoutError:
        return False


def test_paused_broker_answers_when_it_is_resumed(orders: Cluster) -> None:
    broker = orders[2]
    with connect(broker) as old:
        old.sendall(API_VERSIONS_V0)
        assert is_answered(old, 10)
        old.recv(1 << 16)

        broker.pause()
        broker.pause()
        with connect(broker) as new:
            for client in (old, new):
                client.sendall(API_VERSIONS_V0)
            assert not is_answered(old, 0.3)
            assert not is_answered(new, 0.3)
            assert broker.is_paused

            broker.resume()
            broker.resume()
            assert is_answered(old, 10)
            assert is_answered(new, 10)
    assert images_are_equal(orders)


def test_paused_broker_keeps_its_session_and_its_partitions(orders: Cluster) -> None:
    broker = another(orders, orders.controller)
    led = led_by(orders, "orders", broker)

    broker.pause()
    orders.create_topic("more", 3)

    assert led_by(orders, "orders", broker) == led
    assert "more" not in image_of(broker).topics
    assert [one.partition for one in orders.records("orders")] == [one for one in range(PARTITIONS) if one not in led]
    broker.resume()
    assert "more" in image_of(broker).topics
    assert all_values(orders) == NUMBERS


def test_paused_controller_is_deposed_when_its_session_expires(orders: Cluster) -> None:
    old = orders.controller
    old.pause()
    assert orders.controller is old
    asked = another(orders, old)

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(create, asked, "made")  # asks the old one, then the new one
        time.sleep(0.1)
        assert not waiting.done()
        old.expire_session()
        now = orders.controller
        assert now is not old
        assert served(old).running.cluster.seat.controller is not None, "it does not know yet"
        orders.wait_until_ready()
        assert old.id not in image_of(now).brokers
        old.resume()
        assert waiting.result() in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    assert orders.controller is now
    assert served(old).running.cluster.seat.controller is None
    assert images_are_equal(orders)
    assert all_values(orders) == NUMBERS


def test_start_does_not_wait_for_a_paused_controller_that_has_a_successor(
    orders: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = orders.controller
    starting = another(orders, old)
    starting.stop()
    asked = threading.Event()

    async def never_answered(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        old.pause()
        with monkeypatch.context() as patch:
            patch.setattr(seat, "fetch_image", never_answered)
            started = threads.submit(starting.start)
            assert asked.wait(60)
        old.expire_session()
        started.result(60)
    assert led_by(orders, "orders", starting) != []
    old.resume()
    assert images_are_equal(orders)
    assert all_values(orders) == NUMBERS


@LEAVING
def test_paused_broker_is_stopped_and_killed(orders: Cluster, leave: Leave) -> None:
    orders[2].pause()
    leave(orders[2])
    assert not orders[2].is_paused
    assert images_are_equal(orders)

    orders[2].start()
    assert all_values(orders) == NUMBERS


# Cut off from each other


def test_broker_that_is_cut_off_from_the_controller_serves_on_and_catches_up(orders: Cluster) -> None:
    controller = orders.controller
    cut = another(orders, controller)
    led = led_by(orders, "orders", cut)

    orders.cut(cut.id, controller.id)
    orders.create_topic("more", 3)

    assert "more" not in image_of(cut).topics
    assert cut.append("orders", [b"more"], partition=led[0]) == 1
    with pytest.raises(TimeoutError, match=f"broker {cut.id} does not have the newest image"):
        orders.wait_until_ready(timeout_seconds=0.1)

    orders.heal()
    assert images_are_equal(orders)
    assert "more" in image_of(cut).topics


def test_isolated_controller_stays_the_controller_until_its_session_is_lost(orders: Cluster) -> None:
    controller = orders.controller
    orders.isolate(controller.id)
    assert orders.controller is controller

    controller.expire_session()
    now = orders.controller
    until(lambda: controller.id in image_of(now).brokers)

    orders.heal()
    assert images_are_equal(orders)
    assert all_values(orders) == NUMBERS


def test_request_waits_for_a_controller_that_cannot_be_reached_for_a_moment(orders: Cluster) -> None:
    controller = orders.controller
    asked = another(orders, controller)
    orders.cut(controller.id, asked.id)
    healing = threading.Timer(0.5, orders.heal)
    healing.start()
    try:
        assert create(asked, "made") is ErrorCode.NONE
    finally:
        healing.join()
    assert images_are_equal(orders)


def deleted_topics(cluster: Cluster) -> list[str]:
    """Those that some broker may still have files of."""
    return cluster.home.run(served(cluster.controller).running.cluster.membership.store.children(DELETED_TOPICS))


def until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it has not become so in time"
        time.sleep(0.01)
