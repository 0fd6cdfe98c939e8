"""One of two log directories fails, at any call that the broker makes there: the other one serves on.

Every kind of call of every phase fails, half of them once and the others from then on. With `BARNABAS_LONG_TESTS=1`
every single call does, in both ways.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.broker.health import BrokerState
from barnabas.storage.directories.directories import AllDirectoriesOffline
from tests.support.failing_files import Call, FailingFiles
from tests.support.two_directories import BIG, Serving, TwoDirectories

pytestmark = pytest.mark.slow

IS_LONG = os.environ.get("BARNABAS_LONG_TESTS") == "1"
TOPICS = ("flushed", "lazy", "compacted")
GROUPS = ("one", "two", "three", "four")

Step: TypeAlias = Callable[[Serving], Awaitable[None]]


async def fill(serving: Serving) -> None:
    """Topics with a partition in each directory, and something in all of them."""
    await serving.create("flushed", flush_messages="1")
    await serving.create("lazy", segment_ms="1000", retention_ms="-1")
    await serving.create("compacted", segment_ms="1000", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    await serving.create("expiring", segment_ms="1000", retention_ms="60000", file_delete_delay_ms="1000")
    await serving.create("doomed", file_delete_delay_ms="1000")
    for group in GROUPS:
        await serving.commit(group, 1)
    for index in range(2):
        for topic in (*TOPICS, "doomed"):
            await serving.produce(topic, index, b"first", b"second")
    assert len({serving.two.directory_of[TopicPartition("lazy", index)] for index in range(2)}) == 2


async def produce(serving: Serving) -> None:
    for index in range(2):
        for topic in TOPICS:
            await serving.produce(topic, index, b"small")
            await serving.produce(topic, index, BIG)
        await serving.produce_together([TopicPartition(topic, index) for topic in ("lazy", "compacted")], b"together")


async def roll(serving: Serving) -> None:
    serving.two.clock.advance(2_000)
    for index in range(2):
        for topic in ("lazy", "compacted"):
            await serving.produce(topic, index, b"in a new segment")


async def read(serving: Serving) -> None:
    for index in range(2):
        for topic in TOPICS:
            await serving.fetch(topic, index, is_whole=topic != "compacted")
            await serving.list_offsets(topic, index, serving.two.clock.now_ms() - 1_000)
            await serving.list_offsets(topic, index, -3)


async def commit(serving: Serving) -> None:
    for group in GROUPS:
        await serving.commit(group, 2)


async def keep_house(serving: Serving) -> None:
    """Flushes, checkpoints, retention, compaction, and the removal of what they leave."""
    for index in range(2):
        await serving.produce("expiring", index, b"soon gone")
        serving.two.values.pop(TopicPartition("expiring", index), None)
    await roll(serving)
    await serving.keep_house(3)
    await serving.keep_house(4, 60_000)


async def create(serving: Serving) -> None:
    await serving.create("new")
    for index in range(2):
        if serving.files.failed is None or not serving.is_failing(TopicPartition("new", index)):
            await serving.produce("new", index, b"first")


async def delete_records(serving: Serving) -> None:
    for index in range(2):
        await serving.delete_records("lazy", index, 2)
    await serving.keep_house(1, 1_000)


async def delete(serving: Serving) -> None:
    await serving.delete_topic("doomed")
    await serving.keep_house(1, 2_000)
    if serving.files.failed is not None:  # the name is free, whatever the failed directory still holds
        await serving.create("doomed")
        for index in range(2):
            await serving.produce("doomed", index, b"anew")
        await serving.delete_topic("doomed")


async def nothing(serving: Serving) -> None:
    """For what happens at the start and at the end."""


PHASES: dict[str, Step] = {
    "open": nothing,
    "produce": produce,
    "roll": roll,
    "read": read,
    "commit": commit,
    "keep house": keep_house,
    "create": create,
    "delete records": delete_records,
    "delete": delete,
    "stop": nothing,
}


async def live(two: TwoDirectories, files: FailingFiles, phase: str) -> None:
    """One life of the broker; the directory fails in this phase of it."""
    files.phase = "open"
    async with two.serving(files) as serving:
        if phase.startswith("delete"):  # so that housekeeping does nothing but what is asked for
            files.phase = "settle"
            await serving.keep_house(2)
        files.phase = phase
        await PHASES[phase](serving)
        files.phase = "end"
        if files.failed is not None:
            serving.check_offline()
            for index in range(2):
                await serving.produce("flushed", index, b"at the end")
                await serving.fetch("flushed", index)
            await serving.commit("one", 3)
            await serving.keep_house(1)
            await serving.check_metadata()
            health = serving.broker.health
            assert (health.is_healthy, health.offline_directories) == (True, (two.failing,))
            assert health.problems[0].startswith(f"{two.failing} is offline: cannot ")
        serving.check_alive()
        files.phase = "stop"


async def check_healed(two: TwoDirectories) -> None:
    """After a restart on a disk that works, everything that was acknowledged is there."""
    async with two.serving(FailingFiles()) as serving:
        assert serving.broker.logs.offline_directories == []
        serving.check_alive()
        for name, expected in two.values.items():
            if expected:
                await serving.fetch(name.topic, name.partition, is_whole=name.topic != "compacted")
        for index in range(2):
            await serving.produce("lazy", index, b"goes on")


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """In memory, where there is some: a disk would take most of the time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def prepared(request: pytest.FixtureRequest, scratch: Path) -> TwoDirectories:
    """Directories that a broker has used, after a clean stop and after a kill."""
    root = scratch / request.param
    shutil.rmtree(root, ignore_errors=True)  # of the same directories, prepared before
    two = TwoDirectories(root / "live")

    async def main() -> None:
        async with two.serving(FailingFiles()) as serving:
            await fill(serving)
            await produce(serving)
            await roll(serving)
            await serving.keep_house(1)
            await produce(serving)
            if request.param == "unclean":
                shutil.copytree(root / "live", root / "killed")

    asyncio.run(main())
    return two if request.param == "clean" else two.copy_to(root / "killed")


def run_once(prepared: TwoDirectories, root: Path, phase: str, files: FailingFiles) -> None:
    shutil.copytree(Path(prepared.failing).parent, root)
    two = prepared.copy_to(root)
    files.watch(two.failing)
    try:
        asyncio.run(live(two, files, phase))
        asyncio.run(check_healed(two))
    finally:
        shutil.rmtree(root)


def calls_of(prepared: TwoDirectories, root: Path, phase: str) -> dict[int, Call]:
    """What the broker calls in a phase: every call, or the first of each kind."""
    files = FailingFiles()
    run_once(prepared, root, phase, files)
    calls = {number: call for number, call in enumerate(files.calls) if call.phase == phase}
    if IS_LONG:
        return calls
    kinds = {call.kind: number for number, call in reversed(calls.items())}
    return {number: kind for kind, number in kinds.items()}


def cases() -> Iterator[Any]:
    """How the directories were left matters to opening them, and no longer after that."""
    for phase in PHASES:
        yield pytest.param("clean", phase, id=phase)
    yield pytest.param("unclean", "open", id="open after a kill")


@pytest.mark.parametrize(("prepared", "phase"), list(cases()), indirect=["prepared"])
def test_failed_directory_is_offline_and_the_other_serves(
    prepared: TwoDirectories, scratch: Path, caplog: pytest.LogCaptureFixture, phase: str
) -> None:
    problems = []
    calls = calls_of(prepared, scratch / "whole", phase)
    assert calls
    for number, call in calls.items():
        for is_lasting in (False, True) if IS_LONG else (number % 2 == 0,):
            files = FailingFiles()
            files.fail_at(number, is_lasting=is_lasting)
            caplog.clear()
            try:
                run_once(prepared, scratch / "run", phase, files)
                said = [text for one in caplog.records if "failing is offline" in (text := one.getMessage())]
                assert phase == "stop" or files.failed is None or len(said) == 1, said
            except Exception as error:  # noqa: BLE001 - all of them are shown together
                problems.append(f"{call} {'lasting' if is_lasting else 'once'}: {error!r:.600}")
    assert problems == [], f"{len(problems)} of {len(calls)} calls:\n" + "\n".join(problems)


def test_broker_whose_last_directory_fails_says_so_and_ends(scratch: Path) -> None:
    two = TwoDirectories(scratch / "both")
    files = FailingFiles()

    async def main() -> None:
        async with two.serving(files) as serving:
            await serving.create("orders")
            files.watch(str(scratch / "both"))
            files.fail_at(0, is_lasting=True)
            for index in range(2):
                two.directory_of[TopicPartition("orders", index)] = two.failing
                await serving.produce("orders", index, b"lost")
            assert serving.broker.health.state is BrokerState.UNAVAILABLE
            assert len(serving.broker.health.problems) == 2
            with pytest.raises(AllDirectoriesOffline, match="Input/output error"):
                async with asyncio.timeout(120):
                    await serving.broker.wait_stopped()

    asyncio.run(main())
