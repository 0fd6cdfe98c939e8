"""The tick that writes what was staged: in what order, and who is called before."""

import asyncio

from barnabas.base.clock import ManualClock
from barnabas.replication.tick import AppendTick
from tests.support.network import run
from tests.support.played_replies import PlayedReplies


class Scene:
    """A tick, and everything that it does in its order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.tick = AppendTick(
            asyncio.get_running_loop(), ManualClock(0), PlayedReplies(lambda: self.done.append("replies"))
        )

    def stage(self, name: str) -> None:
        self.tick.add(PlayedPartition(self, name))


class PlayedPartition:
    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name

    def write(self, now_ms: int) -> None:
        self._scene.done.append(self._name)


def test_everything_staged_in_a_tick_is_written_before_the_replies_go() -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.stage("a")
        scene.stage("b")
        assert scene.done == []
        await asyncio.sleep(0)
        assert scene.done == ["a", "b", "replies"]
        await asyncio.sleep(0)
        assert scene.done == ["a", "b", "replies"], "nothing is left to write"

    run(scenario())


def test_what_is_staged_before_the_write_is_written_with_it() -> None:
    """As the coordinator does: its batch is made at the end of the tick, of all that came."""

    async def scenario() -> None:
        scene = Scene()
        scene.tick.before_write(lambda: scene.stage("groups"))
        scene.stage("a")
        await asyncio.sleep(0)
        assert scene.done == ["a", "groups", "replies"]

    run(scenario())


def test_callback_alone_begins_a_tick() -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.tick.before_write(lambda: scene.stage("groups"))
        await asyncio.sleep(0)
        assert scene.done == ["groups", "replies"]

    run(scenario())


def test_callback_that_asks_again_has_its_turn_with_the_next_tick() -> None:
    """A refused change of a group leads to another one: that must not keep the tick from ending."""

    async def scenario() -> None:
        scene = Scene()

        def stage_and_ask_again() -> None:
            scene.stage("groups")
            scene.tick.before_write(stage_and_ask_again)

        scene.tick.before_write(stage_and_ask_again)
        await asyncio.sleep(0)
        assert scene.done == ["groups", "replies"]
        await asyncio.sleep(0)
        assert scene.done == ["groups", "replies"] * 2

    run(scenario())


def test_written_ahead_of_its_time_a_tick_writes_once() -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.stage("a")
        scene.tick.write()
        assert scene.done == ["a", "replies"]
        await asyncio.sleep(0)
        assert scene.done.count("a") == 1

    run(scenario())
