"""The demo tells a true story: with fewer records, as a whole, and where the broker has not what it must have."""

import asyncio
from pathlib import Path

import pytest

from barnabas.cli import demo
from barnabas.cli.output import progress
from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram
from barnabas.client.blocking import BlockingClient
from barnabas.client.cluster import Cluster
from barnabas.testing import Broker


def ignore(count: int) -> None:
    pass


def test_demo_produces_consumes_kills_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "RECORDS", 20_000)
    monkeypatch.setattr(demo, "RECORDS_UNDER_KILL", 20_000)

    asyncio.run(demo.run_demo(tmp_path))

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line[0].isdigit()] == [
        "started",
        "produced",
        "consumed",
        "killed",
        "consumed",
        "stopped",
    ]
    assert lines[-1] == "All 40,000 records arrived, each once and in order."


def test_consuming_notices_records_that_were_not_produced(barnabas_broker: Broker) -> None:
    barnabas_broker.create_topic("demo")
    barnabas_broker.append("demo", [demo.make_value(0)], key=demo.make_key(0), timestamp_ms=demo.START_MS)
    barnabas_broker.append("demo", [demo.make_value(2)], key=demo.make_key(1), timestamp_ms=demo.START_MS + 1)

    async def consume() -> None:
        async with Cluster(barnabas_broker.bootstrap) as cluster:
            await demo.consume(cluster, 0, 2, ignore)

    with pytest.raises(demo.DemoFailed, match="the value_data of the records from 0 on differ from what was produced"):
        asyncio.run(consume())


def test_broker_that_does_not_start_fails_the_demo(tmp_path: Path) -> None:
    (tmp_path / "data").touch()

    with pytest.raises(demo.DemoFailed, match=r"the broker did not start: .*File exists"):
        demo.BrokerProcess(tmp_path).start()


@pytest.mark.slow
def test_several_brokers_are_started_killed_stopped_and_started_again(
    zookeeper_program: ZooKeeperProgram, tmp_path: Path
) -> None:
    cluster = demo.BrokerProcess(tmp_path, brokers=3)
    try:
        cluster.start()
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topic("orders", partitions=3)
            client.produce("orders", [b"two coffees"])
            cluster.kill_broker(2)
            client.produce("orders", [b"a tea"])
        cluster.stop()
        addresses = cluster.bootstrap
        cluster.start()
        assert cluster.bootstrap == addresses
        with BlockingClient(addresses) as client:
            assert {record.value for record in client.read("orders")} == {b"two coffees", b"a tea"}
        cluster.stop()
    finally:
        cluster.kill()


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("writing", 100, unit="records") as advance:
        advance(100)

    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")
