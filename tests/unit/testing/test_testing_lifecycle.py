"""The testing broker starts, stops, restarts and is killed, alone, in a coroutine and under pytest."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker import upkeep
from barnabas.client.blocking import BlockingClient
from barnabas.client.cluster import ClusterOptions
from barnabas.net.errors import NetworkFailed
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.work import Work
from barnabas.testing import Broker, BrokerFailed
from tests.support.testing_broker import values

pytest_plugins = ["pytester"]


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
    monkeypatch.setattr(upkeep, "INTERVAL_SECONDS", 0.01)
    broker = Broker()
    broker.start()
    assert broker._running is not None
    thread, due_in_slices = broker._running.home.thread, LogManager.due_in_slices
    life = broker._running._life
    assert life is not None

    def fail(manager: LogManager, now_ms: int) -> Iterator[Work | None]:
        if threading.current_thread() is thread:  # the broker of the session may run beside this one
            raise AssertionError("a bug")
        return due_in_slices(manager, now_ms)

    monkeypatch.setattr(LogManager, "due_in_slices", fail)
    life.result()
    with pytest.raises(BrokerFailed) as failed:
        broker.close()
    assert str(failed.value.__cause__) == "a bug"


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
