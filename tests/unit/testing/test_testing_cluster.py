"""Three brokers of a test find each other, share topics, records and groups, and leave nothing behind."""

import asyncio
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base.errors import InvalidSetting
from barnabas.net.errors import ListenFailed
from barnabas.testing import Cluster
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.unit.testing.cluster_requests import (
    BROKER_RESOURCE,
    another,
    create,
    delete,
    fill,
    grow,
    image_of,
    images_are_equal,
    led_by,
    metadata,
    partition_in,
    served,
    set_config,
)

pytest_plugins = ["pytester"]

START_SECONDS = 0.3


@pytest.fixture(scope="module")
def kept() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"num.partitions": 6}) as one:
        yield one


@pytest.fixture
def cluster(kept: Cluster) -> Iterator[Cluster]:
    """For tests that stop no broker."""
    yield kept
    kept.delete_all_topics()


# Starting and ending


def test_cluster_starts_in_a_third_of_a_second() -> None:
    seconds = []
    for _ in range(5):  # the machine may be busy with something else
        began = time.perf_counter()
        with Cluster(brokers=3) as cluster:
            seconds.append(time.perf_counter() - began)
            assert [broker.id for broker in cluster] == [1, 2, 3]
        if seconds[-1] <= START_SECONDS:
            return
    raise AssertionError(f"starts took {seconds}")


def test_closed_cluster_leaves_no_thread_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(threading.enumerate())
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=3)
        assert len(list(tmp_path.iterdir())) == 3

    assert list(tmp_path.iterdir()) == []
    assert set(threading.enumerate()) <= before


def test_given_directory_has_a_folder_for_each_broker_and_is_kept(tmp_path: Path) -> None:
    with Cluster(brokers=2, data_directory=tmp_path / "data") as cluster:
        cluster.create_topic("orders", partitions=2)

    assert len(list((tmp_path / "data").glob("broker-[12]/orders-[01]"))) == 2


def test_failed_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(threading.enumerate())
    with pytest.raises(InvalidSetting):
        Cluster(settings={"num.partitions": "none"}).start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenFailed):
            Cluster(brokers=2, settings={"listeners": f"PLAINTEXT://127.0.0.1:{port}"}).start()

    assert list(tmp_path.iterdir()) == []
    assert set(threading.enumerate()) <= before


def test_cluster_of_no_broker_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one broker"):
        Cluster(brokers=0)


def test_cluster_in_a_coroutine_does_not_need_its_loop() -> None:
    async def scenario() -> list[bytes | None]:
        async with Cluster(brokers=2) as cluster:
            cluster.create_topic("orders", partitions=2)
            fill(cluster, "orders", 2)
            return [record.value for record in await asyncio.to_thread(cluster.records, "orders", 2)]

    assert asyncio.run(scenario()) == [b"0", b"1"]


def test_plugin_gives_each_test_a_whole_cluster_without_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from barnabas.testing import ApiKey, ErrorCode

        def test_first(barnabas_cluster, request):
            barnabas_cluster.create_topic("orders", partitions=3)
            barnabas_cluster[1].fail(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, times=None)
            barnabas_cluster[2].kill()
            barnabas_cluster.cut(1, 3)
            request.config.bootstrap = barnabas_cluster.bootstrap

        def test_second(barnabas_cluster):
            assert barnabas_cluster.topics() == []
            assert all(broker.is_running for broker in barnabas_cluster)
            barnabas_cluster[3].pause()
            barnabas_cluster.controller.expire_session()

        def test_third(barnabas_cluster, request):
            assert not any(broker.is_paused for broker in barnabas_cluster)
            assert barnabas_cluster.bootstrap == request.config.bootstrap
        """
    )

    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)


# What there is


def test_every_broker_knows_all_brokers_and_the_controller(cluster: Cluster) -> None:
    addresses = cluster.bootstrap.split(",")
    for broker in cluster:
        answer = metadata(broker)
        assert answer.controller_id == cluster.controller.id
        assert sorted((one.node_id, f"{one.host}:{one.port}") for one in answer.brokers) == list(
            enumerate(addresses, 1)
        )


def test_there_is_no_other_broker(cluster: Cluster) -> None:
    with pytest.raises(KeyError, match="there are 1 to 3"):
        cluster[4]
    with pytest.raises(KeyError, match="no partition nothing-0"):
        cluster.leader_of("nothing")


def test_partitions_are_spread_and_their_records_are_where_their_leaders_are(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=12)
    assert [len(led_by(cluster, "orders", broker)) for broker in cluster] == [4, 4, 4]
    fill(cluster, "orders", 12)

    assert [(one.partition, one.value) for one in cluster.records("orders", count=12)] == [
        (index, str(index).encode()) for index in range(12)
    ]
    for broker in cluster:
        assert [one.partition for one in broker.records("orders")] == led_by(cluster, "orders", broker)
    assert [one.value for one in cluster.records("orders", partition=7)] == [b"7"]


def test_append_to_a_broker_that_does_not_lead_says_who_does(cluster: Cluster) -> None:
    cluster.create_topic("orders")
    leader = cluster.leader_of("orders")
    assert leader is not None
    with pytest.raises(KafkaError, match=f"broker {leader.id} leads orders-0") as refused:
        another(cluster, leader).append("orders", [b"a"])
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError, match="no partition 1; it has 1"):
        cluster.append("orders", [b"a"], partition=1)
    with pytest.raises(TimeoutError, match="there is no topic nothing; waited for 1 record"):
        cluster.records("nothing", count=1, timeout_seconds=0.1)


def test_append_creates_a_topic_where_it_may(cluster: Cluster) -> None:
    assert cluster.append("orders", [b"a"], partition=8, create=True) == 0
    assert len(image_of(cluster[1]).topics["orders"].partitions) == 9


# Changes that any broker takes


def test_any_broker_creates_grows_configures_and_deletes_topics(cluster: Cluster) -> None:
    for broker in cluster:
        name = f"orders{broker.id}"
        assert create(broker, name) is ErrorCode.NONE
        assert create(broker, name) is ErrorCode.TOPIC_ALREADY_EXISTS
        assert images_are_equal(cluster)
        assert all(len(image_of(one).topics[name].partitions) == 3 for one in cluster)

        assert grow(broker, name, 7) is ErrorCode.NONE
        assert images_are_equal(cluster)
        assert all(len(image_of(one).topics[name].partitions) == 7 for one in cluster)
        fill(cluster, name, 7)

        assert set_config(broker, name, "retention.ms", "-1") is ErrorCode.NONE
        assert images_are_equal(cluster)
        assert all(image_of(one).configs_of_topic(name) == {"retention.ms": "-1"} for one in cluster)

        assert delete(broker, name) is ErrorCode.NONE
        assert delete(broker, name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert images_are_equal(cluster)
        assert not any(name in image_of(one).topics for one in cluster)
        assert not any(list(one.data_directory.glob(f"{name}-?")) for one in cluster)


@pytest.mark.parametrize("is_for_all", [True, False], ids=["all brokers", "one broker"])
def test_settings_of_brokers_reach_every_broker(cluster: Cluster, is_for_all: bool) -> None:
    for broker in cluster:
        owner = None if is_for_all else broker.id
        resource = "" if owner is None else str(owner)
        for value in ("123456", None):  # None: it is taken away again
            told = set_config(broker, resource, "message.max.bytes", value, BROKER_RESOURCE)
            assert told is ErrorCode.NONE
            assert images_are_equal(cluster)
            expected = {} if value is None else {"message.max.bytes": value}
            assert all(image_of(one).configs_of_broker(owner) == expected for one in cluster)


def test_answer_comes_when_the_asked_broker_serves_the_topic(cluster: Cluster) -> None:
    asked = another(cluster, cluster.controller)
    for number in range(10):
        assert create(asked, f"orders{number}") is ErrorCode.NONE
        [topic] = metadata(asked, f"orders{number}").topics
        assert ErrorCode(topic.error_code) is ErrorCode.NONE


def test_topic_has_as_many_replicas_as_there_are_brokers_at_most(cluster: Cluster) -> None:
    asked = another(cluster, cluster.controller)
    assert create(asked, "orders", replication_factor=4) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert create(asked, "orders", replication_factor=3) is ErrorCode.NONE
    epochs = {one.id: one.epoch for one in image_of(asked).brokers.values()}
    for one in image_of(asked).topics["orders"].partitions:
        assert sorted(one.replicas) == [1, 2, 3]
        assert dict(zip(one.isr, one.isr_epochs, strict=True)) == epochs


def test_topic_that_is_asked_for_through_all_brokers_exists_once(cluster: Cluster) -> None:
    names = [f"auto{number}" for number in range(10)]
    threads = [threading.Thread(target=metadata, args=(one, *names), kwargs={"creates": True}) for one in cluster]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deadline = time.monotonic() + 30
    while len(image_of(cluster[1]).topics) < len(names) and time.monotonic() < deadline:
        time.sleep(0.01)

    assert images_are_equal(cluster)
    assert cluster.topics() == sorted(names)
    assert all(len(image_of(cluster[1]).topics[name].partitions) == 6 for name in names)
    ids = [{name: topic.id for name, topic in image_of(broker).topics.items()} for broker in cluster]
    assert ids[0] == ids[1] == ids[2]


def test_partitions_are_led_in_the_epoch_that_the_image_says(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=3)
    for index in range(3):
        leader = cluster.leader_of("orders", index)
        assert leader is not None
        partition = served(leader).replicas.get("orders", index)
        assert partition is not None
        assert partition.leader_epoch == partition_in(leader, "orders", index).leader_epoch
