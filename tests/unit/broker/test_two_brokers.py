"""Two brokers on one event loop have nothing in common: one stops, fails or never starts, and the other serves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from barnabas.base.errors import BarnabasError
from barnabas.broker.app import Broker
from barnabas.net.errors import ListenFailed
from barnabas.records.batch import Codec
from barnabas.replication import admission
from barnabas.replication.tick import AppendTick
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.frame_client import connected, fetch_of, join_of, produce_of
from tests.support.network import run

SETTINGS = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "1",
    "group_initial_rebalance_delay_ms": "0",
    "metrics_listen": "127.0.0.1:0",
}


async def check_serves(served: ServedBroker, group_id: str) -> None:
    """Produce with a flush, a batch for a worker, fetch with a wait, groups that are read back, and the metrics."""
    broker = served.broker
    async with connected(served) as writer, connected(served) as reader:
        end = served.partition("flushed").end_offset
        reader.send(*fetch_of("flushed", end, wait_ms=60_000))
        for asked in (produce_of("flushed"), produce_of("flushed", b"v" * 1000, Codec.GZIP)):
            answer = await writer.ask(*asked)
            assert answer.responses[0].partition_responses[0].error_code.value == 0
        assert await asyncio.wait_for(reader.reader.readexactly(4), 120)
        joined = await writer.ask(*join_of(group_id))
        assert joined.error_code.value == 0
        assert (await served.commit(end)).value == 0
        led = next(iter(broker.groups.coordinator))
        led._reload(BarnabasError("a test reads it back"))
        await broker.groups.coordinator.wait_loaded()
        assert led.state.groups.group_ids()
        http_reader, http_writer = await asyncio.open_connection("127.0.0.1", broker.metrics_port)
        http_writer.write(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await http_reader.readline()).split()[1] == b"200"
        http_writer.close()


@asynccontextmanager
async def prepared(directory: Path) -> AsyncIterator[ServedBroker]:
    async with served_broker(directory, **SETTINGS) as served:
        await served.create("flushed", flush_messages="1")
        await served.create("orders")
        await served.find_coordinator()
        yield served


class Refusing(Executor):
    """What a loop has as its default executor, where nobody may use it."""

    def __init__(self) -> None:
        self.used: list[Any] = []

    def submit(self, function: Any, /, *arguments: Any, **names: Any) -> Any:
        self.used.append(function)
        raise AssertionError(f"{function} runs in the loop's default executor")


async def is_stopped(stack: AsyncExitStack, ending: ServedBroker) -> None:
    await stack.aclose()


async def is_stopped_twice(stack: AsyncExitStack, ending: ServedBroker) -> None:
    await stack.aclose()
    with pytest.raises(AssertionError, match="one life"):
        await ending.broker.__aenter__()


async def fails(stack: AsyncExitStack, ending: ServedBroker) -> None:
    broken = pytest.MonkeyPatch()

    def stumble(tick: AppendTick) -> None:
        raise ZeroDivisionError

    try:
        broken.setattr(AppendTick, "write", stumble)
        async with connected(ending) as client:
            client.send(*produce_of("orders"))
            with pytest.raises(ZeroDivisionError):
                await ending.broker.wait_stopped()
    finally:
        broken.undo()


async def fails_and_stops(stack: AsyncExitStack, ending: ServedBroker) -> None:
    await fails(stack, ending)
    await stack.aclose()


@pytest.mark.parametrize("end", [is_stopped, is_stopped_twice, fails, fails_and_stops])
def test_broker_goes_on_when_the_other_one_on_its_loop_ends(
    end: Callable[[AsyncExitStack, ServedBroker], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "TURN_COST_MAX", 0)  # compressed batches go to a worker
    refusing = Refusing()

    async def scenario() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_default_executor(refusing)
        async with prepared(tmp_path / "staying") as staying, AsyncExitStack() as stack:
            ending = await stack.enter_async_context(prepared(tmp_path / "ending"))
            await check_serves(staying, "before")
            await check_serves(ending, "before")
            await end(stack, ending)
            await check_serves(staying, "after")
            assert staying.broker.failure is None
            async with prepared(tmp_path / "late") as late:
                await check_serves(late, "late")
            await check_serves(staying, "in the end")

    # asyncio's own loop would resolve the listeners' names there.
    run(scenario(), uvloop.new_event_loop)
    assert refusing.used == []


def test_broker_goes_on_when_another_one_does_not_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with prepared(tmp_path / "staying") as staying:
            taken = staying.broker.listeners[0].port
            texts = {
                **staying.broker.settings.texts,
                "log.dirs": str(tmp_path / "other"),
                "listeners": f"PLAINTEXT://127.0.0.1:{taken}",
            }
            other = Broker(type(staying.broker.settings)(texts))
            with pytest.raises(ListenFailed):
                await other.__aenter__()
            await check_serves(staying, "after")
            assert staying.broker.failure is None

    run(scenario())
