"""A bug of the broker's own, wherever it is, ends that broker with one report, and no client waits for ever."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from barnabas.base.supervision import report_bug
from barnabas.broker import upkeep
from barnabas.broker.health import BrokerState
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.history import HISTORY_TOPIC
from barnabas.groups.history_log import HistoryLog
from barnabas.groups.state import GroupShardState
from barnabas.net.connection import Connection
from barnabas.records.batch import Codec
from barnabas.replication import admission
from barnabas.replication.replicas import Replicas
from barnabas.replication.tick import AppendTick
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.log.flush import FlushPlan
from barnabas.storage.log.validate import BatchCheck
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import ServedBroker, new_topic, served_broker
from tests.support.frame_client import Client, connected, fetch_of, join_of, produce_of
from tests.support.network import is_closed_by_peer, run

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
SETTINGS = {
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "1",
    "group_initial_rebalance_delay_ms": "30",
}

CREATION = (ApiKey.CREATE_TOPICS, 7, {"topics": [new_topic("new")], "timeout_ms": 1000, "validate_only": False})


class OurMistakeError(Exception):
    pass


def stumble(*_: object, **__: object) -> Any:
    raise OurMistakeError("a mistake")


def nothing(client: Client) -> None:
    """It happens by itself."""


@dataclass(frozen=True)
class Place:
    """Where the bug is, and what a client does that leads there."""

    owner: type
    name: str
    provoke: Callable[[Client], None] = nothing


PLACES = {
    "callback: the write of a tick": Place(AppendTick, "write", lambda client: client.send(*produce_of("orders"))),
    "callback: an append of groups": Place(GroupCoordinator, "_append", lambda client: client.send(*join_of("g"))),
    "protocol": Place(Connection, "frame_received", lambda client: client.send(*produce_of("orders"))),
    "task: flush": Place(FlushPlan, "run", lambda client: client.send(*produce_of("orders"))),
    "task: checker": Place(
        BatchCheck, "finish", lambda client: client.send(*produce_of("orders", b"v" * 1000, Codec.GZIP))
    ),
    "task: what is due": Place(LogManager, "due_in_slices"),
    "task: image that comes": Place(Replicas, "_bring_about", lambda client: client.send(*CREATION)),
    "timer: group": Place(GroupShardState, "timer_fired", lambda client: client.send(*join_of("g"))),
}


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory:
    return request.param  # type: ignore[no-any-return]


def reports(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno == logging.CRITICAL]


async def check_failed(served: ServedBroker, waiting: Client) -> None:
    """It says why it ends; a client that waits is told by the end of its connection, and so is one that comes."""
    with pytest.raises(OurMistakeError):
        await served.broker.wait_stopped()
    assert await is_closed_by_peer(waiting.reader)
    async with connected(served) as late:
        assert await is_closed_by_peer(late.reader)
    assert served.broker.health.state is BrokerState.STOPPING
    assert served.broker.health.problems == ("OurMistakeError: a mistake",)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_bug_ends_the_broker_with_one_report_and_closes_its_connections(
    place: Place,
    loop_factory: LoopFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, **SETTINGS) as served:
            await served.create("orders", flush_messages="1")
            await served.create("events")
            await served.find_coordinator("g")
            async with connected(served) as waiting, connected(served) as client:
                await waiting.is_served()
                waiting.send(*fetch_of("events", wait_ms=600_000))
                await client.is_served()
                with monkeypatch.context() as spoiled:
                    spoiled.setattr(upkeep, "INTERVAL_SECONDS", 0.01)
                    spoiled.setattr(admission, "TURN_COST_MAX", 0)
                    spoiled.setattr(place.owner, place.name, stumble)
                    place.provoke(client)
                    await check_failed(served, waiting)

    monkeypatch.setattr(upkeep, "INTERVAL_SECONDS", 0.01)
    run(scenario(), loop_factory)
    (report,) = reports(caplog)
    assert report.exc_info is not None
    assert isinstance(report.exc_info[1], OurMistakeError)


def test_bug_in_a_job_of_housekeeping_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Work:
        run = finish = failed = following = stumble

    monkeypatch.setattr(upkeep, "INTERVAL_SECONDS", 0.01)
    due_in_slices = LogManager.due_in_slices

    async def scenario() -> None:
        async with served_broker(tmp_path) as served, connected(served) as waiting:
            await waiting.is_served()

            def due(manager: LogManager, now_ms: int) -> Any:
                """The broker of the test session may run beside this one."""
                return iter([Work()]) if manager is served.broker.logs else due_in_slices(manager, now_ms)

            with monkeypatch.context() as spoiled:
                spoiled.setattr(LogManager, "due_in_slices", due)
                await check_failed(served, waiting)

    run(scenario())
    assert len(reports(caplog)) == 1


def test_bug_while_the_story_of_groups_is_read_ends_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(HistoryLog, "_load", _stumble_later)
        async with served_broker(tmp_path, **SETTINGS) as served, connected(served) as waiting:
            await waiting.is_served()
            served.broker.groups._internal_topics.want(HISTORY_TOPIC)
            await check_failed(served, waiting)

    async def _stumble_later(*_: object) -> None:
        stumble()

    run(scenario())


def test_bug_that_ends_a_part_of_the_start_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `run`, the start would wait for an image that never comes."""

    async def stumble_later(*_: object) -> None:
        await asyncio.sleep(0.05)
        stumble()

    monkeypatch.setattr(Replicas, "run", stumble_later)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(OurMistakeError):
            async with served_broker(tmp_path):
                raise AssertionError("it started")
        assert loop.get_exception_handler() is None

    run(scenario())


def test_start_that_is_given_up_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replicas, "wait_for", lambda *_: asyncio.Event().wait())

    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), served_broker(tmp_path):
                raise AssertionError("it started")
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert asyncio.get_running_loop().get_exception_handler() is None

    run(scenario())


def test_later_bugs_of_a_broker_that_ends_are_not_reported_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as served:
            for number in range(3):
                report_bug(asyncio.get_running_loop(), "said by a test", OurMistakeError(f"bug {number}"))
            with pytest.raises(OurMistakeError, match="bug 0"):
                await served.broker.wait_stopped()

    run(scenario())
    assert len(reports(caplog)) == 1
