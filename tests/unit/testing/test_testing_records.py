"""The testing broker's topics and records: what a test appends, reads, waits for and deletes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import InvalidSetting
from barnabas.client.blocking import BlockingClient
from barnabas.client.configs import Resource, ResourceType, describe_configs
from barnabas.testing import ApiKey, Broker, Record
from barnabas.wire.errors import KafkaError
from tests.support.testing_broker import CHANGING, PATIENCE


def test_records_tell_everything_that_was_stored(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    client.produce("orders", [b"value", None], key=lambda value: b"key" if value else None)

    first, second = broker.records("orders")
    assert (first.topic, first.partition, first.offset) == ("orders", 0, 0)
    assert (first.key, first.value, first.headers, first.compression) == (b"key", b"value", (), "none")
    assert (second.key, second.value, second.offset) == (None, None, 1)


def test_records_of_a_topic_that_is_not_there_are_none(broker: Broker) -> None:
    assert broker.records("orders") == []
    with pytest.raises(TimeoutError, match=r"after 0\.01 s there is no topic orders; waited for 1 record$"):
        broker.records("orders", 1, timeout_seconds=0.01)


def test_waiting_in_vain_says_how_many_records_there_were(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    broker.append("orders", [b"a"])
    broker.append("orders", [b"b"], partition=1)

    for partition, found in [
        (None, "orders has 2 records; waited for 3 records"),
        (1, "orders-1 has 1 record; waited for 3 records"),
        (2, "orders has no partition 2, it has 2; waited for 3 records"),
    ]:
        with pytest.raises(TimeoutError, match=f"{found}$"):
            broker.records("orders", 3, partition=partition, timeout_seconds=0.01)


def test_waiting_for_records_of_a_partition_that_comes_later(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(broker.records, "orders", 1, partition=1)
        client.wait_for(
            client.cluster.call(1, ApiKey.CREATE_PARTITIONS, {"timeout_ms": 1000, **CHANGING[ApiKey.CREATE_PARTITIONS]})
        )
        broker.append("orders", [b"a"], partition=1)
        assert [record.value for record in waiting.result()] == [b"a"]


def test_waiting_for_records_ends_when_they_come(broker: Broker) -> None:
    writer = threading.Thread(target=lambda: (broker.create_topic("orders"), broker.append("orders", [b"a", b"b"])))
    writer.start()

    assert [record.value for record in broker.records("orders", 2)] == [b"a", b"b"]
    writer.join()


def test_append_uses_the_clock_of_the_test() -> None:
    clock = ManualClock(5_000)
    with Broker(clock=clock) as broker:
        broker.create_topic("orders")
        assert broker.append("orders", [b"a"]) == 0
        clock.advance(1_000)
        assert broker.append("orders", [b"b"], key=b"k") == 1
        assert [(one.timestamp_ms, one.key) for one in broker.records("orders")] == [(5_000, None), (6_000, b"k")]


def test_appended_records_have_keys_headers_and_timestamps_of_their_own(broker: Broker) -> None:
    broker.create_topic("orders", configs={"retention.ms": -1})
    broker.append(
        "orders",
        [
            Record(b"a", key=b"1", headers={"source": b"web"}, timestamp_ms=1_000),
            Record(b"b", headers=[("source", b"shop"), ("source", None)]),
            b"c",
            Record(None, key=b"2"),
        ],
        key=b"0",
        timestamp_ms=2_000,
    )

    stored = broker.records("orders")
    assert [(one.key, one.value, one.timestamp_ms) for one in stored] == [
        (b"1", b"a", 1_000),
        (b"0", b"b", 2_000),
        (b"0", b"c", 2_000),
        (b"2", None, 2_000),
    ]
    assert [one.headers for one in stored[:3]] == [(("source", b"web"),), (("source", b"shop"), ("source", None)), ()]
    broker.append("copy", stored, create=True)
    assert [replace(one, topic="orders") for one in broker.records("copy")] == stored


def test_append_to_a_topic_that_is_not_there_says_so_or_makes_it(broker: Broker) -> None:
    with pytest.raises(
        KafkaError, match="there is no topic orders; create it with create_topic, or append with create"
    ):
        broker.append("orders", [b"a"])
    assert broker.append("orders", [b"a"], partition=1, create=True) == 0
    assert broker.append("orders", [b"b"], partition=1, create=True) == 1
    assert [(one.partition, one.value) for one in broker.records("orders")] == [(1, b"a"), (1, b"b")]
    with pytest.raises(KafkaError, match=r"orders has no partition 2; it has 2, counted from 0"):
        broker.append("orders", [b"a"], partition=2, create=True)


def test_append_of_no_records_or_of_text_says_so(broker: Broker) -> None:
    broker.create_topic("orders")
    with pytest.raises(ValueError, match="there are no records to append"):
        broker.append("orders", [])
    with pytest.raises(TypeError, match="the value of a record must be bytes or None, not str"):
        broker.append("orders", ["a"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="the key of a record must be bytes or None, not int"):
        broker.append("orders", [Record(b"a", key=1)])  # type: ignore[arg-type]
    assert broker.records("orders") == []


def test_settings_are_texts_numbers_or_truth_values() -> None:
    settings = {"num.partitions": 3, "auto.create.topics.enable": False, "log.cleaner.min.cleanable.ratio": 0.25}
    with Broker({**settings, "log.retention.bytes": 1e9}) as broker:
        configs = {
            "retention.ms": -1,
            "min.cleanable.dirty.ratio": 0.1,
            "preallocate": True,
            "cleanup.policy": "compact",
        }
        broker.create_topic("orders", configs=configs)
        with BlockingClient(broker.bootstrap, PATIENCE) as client:
            topic = Resource(ResourceType.TOPIC, "orders")
            described = client.wait_for(describe_configs(client.cluster, topic, configs))
    assert {entry.name: entry.value for entry in described} == {
        "retention.ms": "-1",
        "min.cleanable.dirty.ratio": "0.1",
        "preallocate": "true",
        "cleanup.policy": "compact",
    }
    with pytest.raises(TypeError, match=r"num\.partitions must be a string, a number or a boolean, not NoneType"):
        Broker({"num.partitions": None})  # type: ignore[dict-item]


def test_deleted_topics_are_gone_and_can_be_made_again(broker: Broker) -> None:
    for name in ("orders", "prices"):
        broker.create_topic(name)
        broker.append(name, [b"old"])

    broker.delete_topic("orders")
    assert broker.topics() == ["prices"]
    broker.delete_all_topics()
    assert broker.topics() == []
    broker.create_topic("orders")
    assert broker.records("orders") == []


def test_bad_topic_is_refused(broker: Broker) -> None:
    broker.create_topic("orders")
    with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
        broker.create_topic("orders")
    with pytest.raises(InvalidSetting, match=r"retention\.ms"):
        broker.create_topic("prices", configs={"retention.ms": "soon"})
