"""`barnabas config --data-dir`: the way back from a setting that keeps everybody out."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.settings import BrokerSettings
from barnabas.cli import main
from barnabas.controller.configs import update_broker_configs, update_topic_configs


def served(directory: Path, work: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
    """A broker on a directory that keeps its metadata."""
    settings = BrokerSettings({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)})

    async def run() -> None:
        async with Broker(settings) as broker:
            await work(broker)

    asyncio.run(asyncio.wait_for(run(), 120))


async def is_let_in(broker: Broker) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.listeners[0].port)
    writer.write(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))  # ApiVersions
    answer = await reader.read(4)
    writer.close()
    return bool(answer)


def barnabas(*arguments: str) -> int:
    return main.run(list(arguments))


@pytest.fixture
def locked_out(tmp_path: Path) -> Path:
    """The directory of a broker that lets nobody in, as settings from before this was refused can make it."""

    async def lock(broker: Broker) -> None:
        services = broker.services
        controllership, broker_id = services.controller.controllership, broker.node_id
        await services.controller.topics.create(services.controller.topics.plan(services.image, "orders", 1, 1))
        await update_topic_configs(controllership, "orders", lambda _: {"retention.ms": "5000"})
        await update_broker_configs(controllership, None, lambda _: {"max.connections": "0"})
        await update_broker_configs(
            controllership, broker_id, lambda _: {"max.connections": "0", "log.retention.ms": "6000"}
        )

    served(tmp_path, lock)
    return tmp_path


def test_setting_that_keeps_everybody_out_is_unset_in_the_directory(
    locked_out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def nobody(broker: Broker) -> None:
        assert not await is_let_in(broker)

    async def everybody(broker: Broker) -> None:
        assert await is_let_in(broker)
        assert broker.services.image.configs_of_broker(broker.node_id) == {"log.retention.ms": "6000"}
        assert broker.services.image.configs_of_topic("orders") == {"retention.ms": "5000"}

    served(locked_out, nobody)
    assert barnabas("config", "get", "--data-dir", str(locked_out)) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["name", "value", "of"],
        ["max.connections", "0", "all", "brokers"],
        ["log.retention.ms", "6000", "broker", "'1'"],
        ["max.connections", "0", "broker", "'1'"],
    ]
    assert barnabas("config", "unset", "max.connections", "--data-dir", str(locked_out)) == 0
    assert capsys.readouterr().out == ("max.connections of all brokers unset\nmax.connections of broker '1' unset\n")
    served(locked_out, everybody)


def test_stored_settings_of_one_resource_are_shown_and_unset_alone(
    locked_out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(locked_out)
    assert barnabas("config", "unset", "retention.ms", "--topic", "orders", "--data-dir", directory) == 0
    assert barnabas("config", "unset", "max.connections", "--broker", "1", "--data-dir", directory) == 0
    capsys.readouterr()
    assert barnabas("config", "get", "max.connections", "--data-dir", directory, "--json") == 0
    assert capsys.readouterr().out == '{"name": "max.connections", "value": "0", "of": "all brokers"}\n'
    assert barnabas("config", "get", "--topic", "orders", "--data-dir", directory) == 0
    assert "nothing was changed" in capsys.readouterr().err

    assert barnabas("config", "unset", "max.connections", "--broker", "1", "--data-dir", directory) == 1
    assert "max.connections is not set there" in capsys.readouterr().err


def test_directory_of_a_running_broker_is_left_alone(locked_out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def try_it(broker: Broker) -> None:
        status = await asyncio.to_thread(barnabas, "config", "unset", "max.connections", "--data-dir", str(locked_out))
        assert status == 1

    served(locked_out, try_it)
    assert "a broker runs in" in capsys.readouterr().err


def test_directory_without_a_broker_is_refused_and_stays_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for directory in (tmp_path, tmp_path / "nowhere"):
        assert barnabas("config", "unset", "max.connections", "--data-dir", str(directory)) == 1
        assert "give the data directory of a broker" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
