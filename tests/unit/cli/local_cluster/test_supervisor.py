"""A local cluster's processes are kept running, and stopped together. Small programs stand in for the brokers."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.cli.local_cluster import supervisor as supervisor_module
from barnabas.cli.local_cluster.broker_child import how_it_ended
from barnabas.cli.local_cluster.cluster_directory import LocalBroker
from barnabas.cli.local_cluster.cluster_screen import BrokerRow, ClusterScreen
from barnabas.cli.local_cluster.supervisor import Server, Supervisor, WhenReady
from barnabas.cli.remote import CommandFailed

PATIENCE_SECONDS = 60
READY = "all is ready"

FAKE_BROKER = """
import os, pathlib, signal, sys, time
home = pathlib.Path(sys.argv[sys.argv.index("--config") + 1]).parent
lives = home / "lives"
life = int(lives.read_text()) + 1 if lives.exists() else 1
lives.write_text(str(life))
print(f"life {life} with {sys.argv[1]} {sys.argv[-1]}", file=sys.stderr, flush=True)
deaths = home / "deaths"
if deaths.exists() and life <= int(deaths.read_text()):
    print("there is a reason", file=sys.stderr, flush=True)
    sys.exit(3)
def stop(*_):
    print("stopped in order", file=sys.stderr, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
while True:
    time.sleep(60)
"""


class SeenScreen(ClusterScreen):
    """Remembers what was shown."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.rows: Sequence[BrokerRow] = ()
        self.ready_rows: list[Sequence[BrokerRow]] = []

    def line(self, name: str, text: str) -> None:
        self.lines.append(f"{name} | {text}")

    def note(self, text: str) -> None:
        self.notes.append(text)

    def show(self, rows: Sequence[BrokerRow]) -> None:
        self.rows = list(rows)

    def ready(self, text: str, bootstrap: str, rows: Sequence[BrokerRow]) -> None:
        assert text == READY
        self.ready_rows.append(rows)


class Scene:
    def __init__(
        self, directory: Path, count: int = 2, server: Server | None = None, when_ready: WhenReady | None = None
    ) -> None:
        script = directory / "broker.py"
        script.write_text(FAKE_BROKER)
        self.screen = SeenScreen()
        self.brokers = [LocalBroker(one, directory / f"broker-{one}", "h", one) for one in range(1, count + 1)]
        for broker in self.brokers:
            broker.write_properties({})
        self.retired: list[str] = []
        self.retire_problem: BarnabasError | None = None
        self.supervisor = Supervisor(
            self.brokers,
            ["--an", "option"],
            self._retire,
            self.screen,
            SystemClock(),
            READY,
            server=server,
            when_ready=when_ready,
            program=[sys.executable, "-S", str(script)],
        )

    async def _retire(self, broker: LocalBroker) -> bool:
        self.retired.append(broker.name)
        if self.retire_problem is not None:
            raise self.retire_problem
        return True

    def state(self, broker_id: int) -> str:
        return next((row.state for row in self.screen.rows if row.broker_id == broker_id), "")

    def pid(self, broker_id: int) -> int:
        (pid,) = [row.pid for row in self.screen.rows if row.broker_id == broker_id]
        assert pid is not None
        return pid

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():  # noqa: ASYNC110 - processes set no event
                await asyncio.sleep(0.01)

    def play(self, story: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """The story, and then Ctrl-C."""

        async def main() -> None:
            running = asyncio.ensure_future(self.supervisor.run())
            if story is not None:
                await asyncio.wait([running, asyncio.ensure_future(story())], return_when=asyncio.FIRST_COMPLETED)
                if not running.done():
                    os.kill(os.getpid(), signal.SIGINT)
            await running

        asyncio.run(main())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_is_to_be_done_when_all_are_ready_is_done_once_and_told(tmp_path: Path) -> None:
    done: list[int] = []

    async def work() -> str:
        done.append(len(scene.screen.ready_rows))
        return "what was to be done is done"

    scene = Scene(tmp_path, when_ready=work)

    async def story() -> None:
        await scene.until(lambda: "what was to be done is done" in scene.screen.notes)
        os.kill(scene.pid(1), signal.SIGKILL)
        await scene.until(lambda: "broker-1 is ready again" in scene.screen.notes)

    scene.play(story)
    assert done == [1]


def test_what_is_to_be_done_when_all_are_ready_does_not_hold_up_the_end(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def work() -> str:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    scene = Scene(tmp_path, when_ready=work)

    async def story() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await begun.wait()

    scene.play(story)
    assert scene.screen.notes == []


def test_all_are_started_and_said_to_be_ready_once_and_a_signal_stops_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3)

    async def story() -> None:
        await scene.until(lambda: scene.screen.ready_rows)

    scene.play(story)

    (rows,) = scene.screen.ready_rows
    assert [(row.broker_id, row.address, row.state) for row in rows] == [(n, f"h:{n}", "ready") for n in (1, 2, 3)]
    assert not any(is_alive(row.pid) for row in rows if row.pid is not None)
    assert [scene.state(number) for number in (1, 2, 3)] == ["stopped"] * 3
    for name in ("broker-1", "broker-2", "broker-3"):
        own = [line for line in scene.screen.lines if line.startswith(name)]
        assert own == [f"{name} | life 1 with broker option", f"{name} | stopped in order"]
    assert scene.screen.notes == []
    assert scene.retired == []


def test_killed_broker_is_said_retired_and_started_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def story() -> None:
        await scene.until(lambda: scene.screen.ready_rows)
        os.kill(scene.pid(2), signal.SIGKILL)
        await scene.until(lambda: "broker-2 is ready again" in scene.screen.notes)

    scene.play(story)

    assert scene.screen.notes == [
        "broker-2 was killed by SIGKILL; its session is ended; it is started again",
        "broker-2 is ready again",
    ]
    assert scene.retired == ["broker-2"]
    assert "broker-2 | life 2 with broker option" in scene.screen.lines
    assert len(scene.screen.ready_rows) == 1


def test_session_that_cannot_be_ended_does_not_keep_a_broker_down(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.retire_problem = BarnabasError("nobody answers")

    async def story() -> None:
        await scene.until(lambda: scene.screen.ready_rows)
        os.kill(scene.pid(1), signal.SIGKILL)
        await scene.until(lambda: "broker-1 is ready again" in scene.screen.notes)

    scene.play(story)

    assert "its session ends by its timeout (nobody answers)" in scene.screen.notes[0]


def test_broker_that_fails_at_first_becomes_ready_after_a_pause(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (scene.brokers[0].directory / "deaths").write_text("2")

    async def story() -> None:
        await scene.until(lambda: scene.screen.ready_rows)

    scene.play(story)

    assert scene.screen.notes == [
        "broker-1 ended with status 3; its session is ended; it is started again",
        "broker-1 ended with status 3; its session is ended; it is started again in 0.5 s",
    ]


def test_crash_loop_stops_the_whole_with_the_last_lines_as_the_reason(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (scene.brokers[1].directory / "deaths").write_text("100")
    with pytest.raises(CommandFailed) as failed:
        scene.play()

    reason, *lines = str(failed.value).splitlines()
    assert reason == "broker-2 ended with status 3, for the 5th time; the last that it said:"
    assert lines[-2:] == ["  life 5 with broker option", "  there is a reason"]
    assert "broker-1 | stopped in order" in scene.screen.lines


def test_second_signal_kills(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 1)

    async def story() -> None:
        await scene.until(lambda: scene.screen.ready_rows)
        os.kill(scene.pid(1), signal.SIGSTOP)  # so that it does not hear the first one
        os.kill(os.getpid(), signal.SIGTERM)
        await scene.until(lambda: scene.state(1) == "stopping")

    scene.play(story)

    assert scene.screen.notes == ["killing the brokers"]
    assert scene.state(1) == "stopped"


def test_reader_that_has_gone_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, 1)
    monkeypatch.setattr(scene.screen, "line", _raise_broken_pipe)
    monkeypatch.setattr(scene.screen, "note", _raise_broken_pipe)

    async def story() -> None:
        await scene.until(lambda: scene.screen.ready_rows)
        os.kill(scene.pid(1), signal.SIGKILL)
        await scene.until(lambda: (tmp_path / "broker-1" / "lives").read_text() == "2" and scene.state(1) == "ready")

    scene.play(story)


def _raise_broken_pipe(*_: str) -> None:
    raise BrokenPipeError


class FakeServer:
    def __init__(self) -> None:
        self.is_running = False
        self.last_words = "out of memory"
        self.starts = 0
        self.lives = 1

    def start(self) -> None:
        self.starts += 1
        self.is_running = self.starts == self.lives


def test_zookeeper_that_ended_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "_LOOK_SECONDS", 0.01)
    server = FakeServer()
    scene = Scene(tmp_path, 1, server)

    async def story() -> None:
        await scene.until(lambda: server.is_running)

    scene.play(story)

    assert scene.screen.notes == ["ZooKeeper ended: out of memory; it is started again"]


def test_crash_loop_of_zookeeper_stops_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "_LOOK_SECONDS", 0.01)
    server = FakeServer()
    server.lives = 100
    with pytest.raises(CommandFailed, match="ZooKeeper ended, for the 5th time: out of memory"):
        Scene(tmp_path, 1, server).play()
    assert server.starts == 4


def test_how_it_ended_is_said_in_words() -> None:
    assert [how_it_ended(status) for status in (0, 1, -15)] == [
        "stopped",
        "ended with status 1",
        "was killed by SIGTERM",
    ]
