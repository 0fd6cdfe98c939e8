"""The broker for test-suites: that it starts and stops, keeps what it must, and goes wrong where a test wants that."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import InvalidSetting
from barnabas.broker import upkeep
from barnabas.client.blocking import BlockingClient
from barnabas.client.broker_connection import ConnectionOptions
from barnabas.client.cluster import ClusterOptions
from barnabas.client.configs import Resource, ResourceType, describe_configs
from barnabas.client.producing.producer import ProducerOptions
from barnabas.net.errors import NetworkFailed
from barnabas.storage.directories.manager import LogManager
from barnabas.testing import ApiKey, Broker, BrokerFailed, ErrorCode, Record
from barnabas.wire.apis import APIS
from barnabas.wire.errors import KafkaError

pytest_plugins = ["pytester"]

PATIENCE = ClusterOptions(ConnectionOptions(connect_timeout_seconds=5), retry_timeout_seconds=5)
NOTHING_ELSE = {"assignments": [], "configs": []}
MEMBER = {"group_id": "billing", "generation_id": 1, "member_id": "m", "group_instance_id": None}
CHANGING = {
    ApiKey.CREATE_TOPICS: {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1, **NOTHING_ELSE}]},
    ApiKey.DELETE_TOPICS: {"topics": [{"name": "orders"}], "topic_names": ["orders"]},
    ApiKey.CREATE_PARTITIONS: {"topics": [{"name": "orders", "count": 2, "assignments": None}]},
    ApiKey.DELETE_RECORDS: {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}]},
    ApiKey.INIT_PRODUCER_ID: {"transactional_id": None, "transaction_timeout_ms": 1000},
    ApiKey.ALTER_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": "orders", "configs": []}]},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": "orders", "configs": []}]},
    ApiKey.OFFSET_COMMIT: {
        **MEMBER,
        "generation_id_or_member_epoch": 1,
        "topics": [
            {"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
        ],
    },
    ApiKey.JOIN_GROUP: {
        **MEMBER,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [],
    },
    ApiKey.HEARTBEAT: MEMBER,
    ApiKey.LEAVE_GROUP: {**MEMBER, "members": [{"member_id": "m"}]},
    ApiKey.SYNC_GROUP: {**MEMBER, "assignments": []},
    ApiKey.DELETE_GROUPS: {"groups_names": ["billing"]},
    ApiKey.OFFSET_DELETE: {"group_id": "billing", "topics": []},
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


@pytest.fixture
def client(broker: Broker) -> Iterator[BlockingClient]:
    with BlockingClient(broker.bootstrap, PATIENCE) as one:
        yield one


def values(broker: Broker, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


# Running


def test_closed_broker_leaves_no_thread_and_no_file() -> None:
    before = set(threading.enumerate())
    with Broker() as broker:
        directory = broker.data_directory
        broker.create_topic("orders", partitions=2)
        assert (directory / "orders-1").is_dir()

    assert not directory.exists()
    assert set(threading.enumerate()) <= before


def test_given_directory_is_kept(tmp_path: Path) -> None:
    with Broker(data_directory=tmp_path / "data") as broker:
        broker.create_topic("orders")

    assert (tmp_path / "data" / "orders-0").is_dir()


def test_restart_keeps_port_topics_and_records(broker: Broker) -> None:
    bootstrap = broker.bootstrap
    broker.create_topic("orders", partitions=2, configs={"retention.ms": "-1"})
    broker.append("orders", [b"a", b"b"], partition=1)

    broker.restart()

    assert (broker.bootstrap, broker.topics()) == (bootstrap, ["orders"])
    assert [(record.partition, record.offset, record.value) for record in broker.records("orders")] == [
        (1, 0, b"a"),
        (1, 1, b"b"),
    ]


def test_kill_leaves_logs_to_recover_and_loses_nothing(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.append("orders", [b"a"])
    broker.restart()
    broker.append("orders", [b"b"])

    broker.kill()
    assert not (broker.data_directory / ".kafka_cleanshutdown").exists()
    broker.start()

    assert values(broker) == [b"a", b"b"]


def test_stopped_broker_refuses_connections(broker: Broker) -> None:
    broker.stop()
    broker.stop()

    with pytest.raises(NetworkFailed), BlockingClient(broker.bootstrap, ClusterOptions(retry_timeout_seconds=0.1)):
        pass


def test_broker_that_stopped_by_itself_raises_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(upkeep, "INTERVAL_SECONDS", 0.01)
    broker = Broker()
    broker.start()
    monkeypatch.setattr(LogManager, "due_in_slices", fail)
    assert broker._running is not None
    broker._running._thread.join()
    with pytest.raises(BrokerFailed) as failed:
        broker.close()
    assert str(failed.value.__cause__) == "a bug"


# Topics and records


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
    broker.create_topic("orders")
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
    with pytest.raises(KafkaError, match="there is no topic orders; create_topic makes one, and append with create"):
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
    with pytest.raises(TypeError, match="the value of a record is bytes or None, not str"):
        broker.append("orders", ["a"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="the key of a record is bytes or None, not int"):
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
    with pytest.raises(TypeError, match=r"num\.partitions is a text, a number or a truth value, not NoneType"):
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


# Faults


def test_failed_requests_change_nothing_and_later_ones_succeed(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    fault = broker.fail(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, times=2)

    (delivered,) = client.produce("orders", [b"late"])

    assert (delivered.offset, fault.used, fault.is_used_up) == (0, 2, True)
    assert values(broker) == [b"late"]


def test_error_that_does_not_pass_reaches_the_client(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    broker.fail(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)

    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        client.produce("orders", [b"never"])
    broker.clear_faults()
    assert client.produce("orders", [b"now"])[0].offset == 0


def test_failed_fetches_are_tried_again(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    broker.append("orders", [b"a"])
    fault = broker.fail(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)

    assert [record.value for record in client.read("orders")] == [b"a"]
    assert fault.used == 2


@pytest.mark.parametrize("api", CHANGING, ids=lambda api: api.name)
def test_every_api_that_changes_something_can_be_refused_and_then_does_nothing(
    broker: Broker, client: BlockingClient, api: ApiKey
) -> None:
    broker.create_topic("orders")
    broker.append("orders", [b"a", b"b"])
    broker.fail(api, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    answer = client.wait_for(client.cluster.call(1, api, {"timeout_ms": 1000, **CHANGING[api]}))

    assert "error_code=<ErrorCode.cluster_authorization_failed: 31>" in repr(answer)
    assert broker.topics() == ["orders"]
    assert values(broker) == [b"a", b"b"]


def test_question_for_versions_can_be_refused(broker: Broker, client: BlockingClient) -> None:
    broker.fail(ApiKey.API_VERSIONS, ErrorCode.UNKNOWN_SERVER_ERROR)
    software = {"client_software_name": "test", "client_software_version": "1"}

    answer = client.wait_for(client.cluster.call(1, ApiKey.API_VERSIONS, software))

    assert (answer.error_code.value, answer.api_keys) == (ErrorCode.UNKNOWN_SERVER_ERROR, ())


def test_api_that_only_reads_is_answered_with_the_error_in_every_place(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders", partitions=2)
    broker.fail(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE)

    answer = client.wait_for(client.cluster.call(1, ApiKey.METADATA, {"topics": None}))

    (topic,) = answer.topics
    codes = [topic.error_code.value, *(one.error_code.value for one in topic.partitions)]
    assert codes == [ErrorCode.LEADER_NOT_AVAILABLE] * 3


def test_lost_answer_is_sent_again_and_stored_once(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    fault = broker.lose_answers(ApiKey.PRODUCE)

    client.produce("orders", [b"once"])

    assert fault.used == 1
    assert values(broker) == [b"once"]


def test_dropped_request_is_sent_again(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    fault = broker.drop(ApiKey.PRODUCE)

    client.produce("orders", [b"once"], options=ProducerOptions(is_idempotent=False))

    assert fault.used == 1
    assert values(broker) == [b"once"]


def test_delayed_request_is_answered_later(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    fault = broker.delay(0.05, ApiKey.PRODUCE)
    began = asyncio.run_coroutine_threadsafe(_loop_time(), client._loop).result()

    client.produce("orders", [b"a"])

    assert fault.used == 1
    assert asyncio.run_coroutine_threadsafe(_loop_time(), client._loop).result() - began >= 0.05


async def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def test_fault_for_every_api_takes_whatever_comes(broker: Broker, client: BlockingClient) -> None:
    fault = broker.drop(times=3)

    assert client.topics() == []
    assert fault.used == 3


def test_dropped_connections_are_made_again(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    broker.drop_connections()

    assert [topic.name for topic in client.topics()] == ["orders"]


def test_faults_hold_over_a_restart(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("orders")
    fault = broker.fail(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS)
    broker.restart()

    client.produce("orders", [b"a"])

    assert fault.used == 1


def test_every_api_is_known_as_changing_or_reading() -> None:
    reading = {api for api in APIS if APIS[api].name.startswith(("Describe", "List", "Metadata", "Find", "ApiV"))}
    others = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH}
    refused = {ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.CONSUMER_GROUP_HEARTBEAT}  # for want of what they change

    assert set(APIS) == reading | set(CHANGING) | others | refused


# Coroutines and pytest


def test_broker_in_a_coroutine_does_not_need_its_loop() -> None:
    async def scenario() -> list[bytes | None]:
        async with Broker() as broker:
            broker.create_topic("orders")
            broker.append("orders", [b"a"])
            return values(broker)

    assert asyncio.run(scenario()) == [b"a"]


def test_plugin_gives_each_test_a_broker_without_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from barnabas.testing import ApiKey, ErrorCode

        def test_first(barnabas_broker, barnabas_bootstrap, request):
            assert barnabas_bootstrap == barnabas_broker.bootstrap
            barnabas_broker.create_topic("orders")
            barnabas_broker.fail(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, times=None)
            request.config.bootstrap = barnabas_bootstrap

        def test_second(barnabas_broker):
            assert barnabas_broker.topics() == []
            barnabas_broker.stop()

        def test_third(barnabas_bootstrap, barnabas_broker, request):
            assert barnabas_broker.is_running
            assert barnabas_bootstrap == request.config.bootstrap
        """
    )

    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_plugin_costs_nothing_where_it_is_not_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            assert "barnabas.broker.app" not in sys.modules
        """
    )

    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
