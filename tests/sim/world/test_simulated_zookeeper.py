"""The simulated ZooKeeper, beyond the contract: sessions and faults, stale reads, late watches, lost answers."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from barnabas.metadata.errors import OutcomeUnknown, SessionLost, SessionSuspended, StoreUnreachable
from barnabas.metadata.store import EventType, SessionState, WatchEvent
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey
from barnabas.sim.world.process import Process
from barnabas.sim.world.world import World
from barnabas.sim.world.zookeeper import SimulatedZooKeeper
from barnabas.sim.world.zookeeper_session import SimulatedSession

CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST

Story = Callable[[World, SimulatedZooKeeper], Coroutine[Any, Any, None]]


def play(story: Story, seed: int | str = 1, **options: Any) -> World:
    world = World(seed, seconds_max=1000.0)
    zookeeper = SimulatedZooKeeper(world, **options)

    async def main() -> None:
        await story(world, zookeeper)
        zookeeper.check_invariants()

    world.run(main())
    return world


class Broker:
    """A host whose process has a session, and notes what happens to it."""

    session: SimulatedSession

    def __init__(self, world: World, number: int) -> None:
        self.name = f"broker-{number}"
        self.world = world
        self.process: Process = world.process(f"{self.name}/1")
        self.states: list[SessionState] = []
        self.times: list[float] = []
        """Of the changes of state."""

    async def start(self, zookeeper: SimulatedZooKeeper) -> None:
        self.session = await self.do(zookeeper.session(self.name))
        self.session.add_session_listener(self._changed)

    def _changed(self, state: SessionState) -> None:
        self.states.append(state)
        self.times.append(self.world.loop.time())

    def do(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return self.world.spawn(self.process, work)

    def cut(self) -> None:
        self.world.network.cut(self.name, "zookeeper")
        self.world.network.cut("zookeeper", self.name)

    def kill(self) -> None:
        self.world.network.process_ended(self.process)
        self.process.die()


async def started(world: World, zookeeper: SimulatedZooKeeper, count: int) -> list[Broker]:
    brokers = [Broker(world, number + 1) for number in range(count)]
    for broker in brokers:
        await broker.start(zookeeper)
    return brokers


async def until_gone(zookeeper: SimulatedZooKeeper, path: str) -> None:
    while zookeeper.tree.node(path) is not None:  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(0.01)


# Reads and watches


def test_read_may_be_stale_and_sync_repairs_it() -> None:
    stale = 0

    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        nonlocal stale
        writer, reader = [broker.session for broker in await started(world, zookeeper, 2)]
        await writer.create("/a", b"old")
        await reader.sync()
        await writer.set("/a", b"new")
        stale += (await reader.get("/a")).data == b"old"
        await reader.sync()
        assert (await reader.get("/a")).data == b"new"

    for seed in range(40):
        play(story, seed)
    assert 2 < stale < 30


def test_session_never_reads_back_in_time_also_when_it_changes_servers() -> None:
    reconnected = 0

    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        nonlocal reconnected
        writer, reader = await started(world, zookeeper, 2)
        await writer.session.create("/a")
        await reader.session.sync()
        seen = [0]

        async def write() -> None:
            for number in range(18):
                await writer.session.set("/a", b"")
                if number % 6 == 5:
                    world.network.break_connection(reader.name, after_bytes=1)
                await asyncio.sleep(0.01)

        writing = writer.do(write())
        while not writing.done():
            with suppress(SessionLost):
                stat = await reader.session.set("/a", b"") if len(seen) % 7 == 0 else None
                seen.append((stat or (await reader.session.get("/a")).stat).version)
            await asyncio.sleep(0.005)
        assert seen == sorted(seen)
        reconnected += reader.states.count(CONNECTED)

    for seed in range(8):
        play(story, seed)
    assert reconnected > 8


def test_read_behind_a_write_sees_it() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        [broker] = await started(world, zookeeper, 1)
        session = broker.session
        _, node, _, after = await asyncio.gather(
            session.create("/a"), session.get("/a"), session.set("/a", b"1"), session.get("/a")
        )
        assert (node.stat.version, after.stat.version) == (0, 1)

    for seed in range(10):
        play(story, seed)


def test_watch_is_late_but_never_after_the_read_that_sees_the_change() -> None:
    late = seen = 0

    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        nonlocal late, seen
        random = world.random("test")
        writer, reader = [broker.session for broker in await started(world, zookeeper, 2)]
        await writer.create("/a")
        await reader.sync()
        events: list[WatchEvent] = []
        version = (await reader.get("/a", events.append)).stat.version
        await writer.set("/a", b"")
        late += not events
        while not events:
            if random.random() < 0.5:  # the read waits for its turn at the server
                _, node = await asyncio.gather(reader.sync(), reader.get("/a"))
            else:
                node = await reader.get("/a")
            assert node.stat.version == version or events
            seen += node.stat.version != version
            await asyncio.sleep(random.uniform(0, 0.03))
        assert events == [WatchEvent(EventType.CHANGED, "/a")]

    for seed in range(200):
        play(story, seed)
    assert min(late, seen) > 30


def test_events_of_one_session_come_in_the_order_of_the_writes() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        *writers, reader = [broker.session for broker in await started(world, zookeeper, 3)]
        events: list[WatchEvent] = []
        for number in range(20):
            await reader.exists(f"/{number}", events.append)
        await asyncio.gather(*(writers[number % 2].create(f"/{number}") for number in range(20)))
        await reader.sync()
        created = await reader.get_many([event.path for event in events])
        positions = [node.stat.czxid for node in created if node is not None]
        assert len(positions) == 20
        assert positions == sorted(positions)

    for seed in range(4):
        play(story, seed)


# Sessions


def test_idle_session_lives_on() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        one, two = await started(world, zookeeper, 2)
        await one.session.create("/e", ephemeral=True)
        await asyncio.sleep(300)
        assert await one.session.exists("/e") is not None
        assert one.states == two.states == []

    play(story)


def test_paused_process_expires_and_believes_it_is_connected_when_it_wakes() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        paused, other = await started(world, zookeeper, 2)
        await paused.session.create("/e", ephemeral=True)
        await other.session.sync()
        events: list[WatchEvent] = []
        await other.session.exists("/e", events.append)
        woken: list[Any] = []

        async def wake() -> None:
            await asyncio.sleep(9)
            woken.append(paused.session.state)
            with pytest.raises(OutcomeUnknown):
                await paused.session.create("/believed")
            woken.append(paused.session.state)

        waking = paused.do(wake())
        await asyncio.sleep(0)
        paused_at = world.loop.time()
        world.loop.hold(paused.process, 20)
        await until_gone(zookeeper, "/e")
        assert 3.9 < world.loop.time() - paused_at < 6.6
        await waking
        assert woken == [CONNECTED, SUSPENDED]
        assert world.loop.time() - paused_at < 20.01
        assert paused.states == [SUSPENDED]
        await asyncio.sleep(1.5)
        assert paused.states == [SUSPENDED, LOST]
        assert events == [WatchEvent(EventType.DELETED, "/e")]
        assert await other.session.exists("/believed") is None
        with pytest.raises(SessionLost):
            await paused.session.exists("/")

    for seed in range(6):
        play(story, seed)


def test_short_pause_is_not_noticed() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        [broker] = await started(world, zookeeper, 1)
        for _ in range(5):
            world.loop.hold(broker.process, 3.5)
            await asyncio.sleep(5)
        assert broker.states == []

    play(story)


@pytest.mark.parametrize("ways", [["there"], ["back"], ["there", "back"]], ids=" and ".join)
def test_short_cut_suspends_and_the_same_session_goes_on(ways: list[str]) -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        broker, other = await started(world, zookeeper, 2)
        session = broker.session
        await session.create("/e", ephemeral=True)
        before = await session.get("/e")
        events: list[WatchEvent] = []
        await session.exists("/watched", events.append)
        cut_at = world.loop.time()
        if "there" in ways:
            world.network.cut(broker.name, "zookeeper")
        if "back" in ways:
            world.network.cut("zookeeper", broker.name)
        await asyncio.sleep(4.2)
        assert broker.states == [SUSPENDED]
        assert 1.5 < broker.times[0] - cut_at < 4.1
        for call in (session.get("/e"), session.create("/a"), session.sync()):
            with pytest.raises(SessionSuspended):
                await call
        world.network.heal()
        await asyncio.sleep(1.2)
        assert broker.states == [SUSPENDED, CONNECTED]
        assert await session.get("/e") == before
        events_after: list[WatchEvent] = []
        await session.exists("/watched", events_after.append)
        await other.session.create("/watched")
        await session.sync()
        assert (len(events), len(events_after)) == (0, 1)

    for seed in range(5):
        play(story, seed)


def test_time_until_a_cut_is_noticed_depends_on_the_seed() -> None:
    def noticed_after(seed: int) -> float:
        async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
            [broker] = await started(world, zookeeper, 1)
            broker.cut()
            await asyncio.sleep(5)
            times.extend(broker.times)

        times: list[float] = []
        play(story, seed)
        return times[0]

    assert len({noticed_after(seed) for seed in range(5)}) == 5


def test_long_cut_ends_the_session_which_learns_it_when_it_is_healed() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        [broker] = await started(world, zookeeper, 1)
        await broker.session.create("/a")
        for name in "123":
            await broker.session.create(f"/a/{name}", ephemeral=True)
        before = zookeeper.tree.zxid
        broker.cut()
        await asyncio.sleep(30)
        assert zookeeper.tree.child_count("/a") == 0
        assert zookeeper.tree.zxid == before + 1
        assert broker.states == [SUSPENDED]
        world.network.heal()
        await asyncio.sleep(1.2)
        assert broker.states == [SUSPENDED, LOST]

    play(story)


@pytest.mark.parametrize("is_power_loss", [False, True])
def test_dead_process_expires_and_none_of_its_callbacks_runs(is_power_loss: bool) -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        dead, other = await started(world, zookeeper, 2)
        await dead.session.create("/e", ephemeral=True)
        events: list[WatchEvent] = []
        await dead.session.exists("/a", events.append)
        if is_power_loss:
            world.network.power_lost(dead.name, dead.process)
            dead.process.die()
        else:
            dead.kill()
        died_at = world.loop.time()
        await other.session.create("/a")
        await until_gone(zookeeper, "/e")
        assert 3.9 < world.loop.time() - died_at < 6.6
        await asyncio.sleep(10)
        assert (dead.states, events) == ([], [])

    play(story)


def test_closed_session_leaves_nothing_behind_in_its_process() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        [broker] = await started(world, zookeeper, 1)

        async def leave() -> None:
            await broker.session.close()
            assert world.loop.timers_of(broker.process) == []
            assert world.network.open_connections(broker.process) == 0

        await broker.do(leave())
        await broker.start(zookeeper)
        broker.cut()
        await asyncio.sleep(5)
        assert broker.session.state is SUSPENDED
        await broker.do(leave())

    play(story)


def test_session_of_a_dead_process_is_ended_from_outside() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        dead, alive = await started(world, zookeeper, 2)
        for broker in (dead, alive):
            await broker.session.create(f"/{broker.name}", ephemeral=True)
        key = dead.session.session_key
        assert not await zookeeper.end_session(SessionKey(key.session_id, b"guessed"))
        dead.kill()
        killed_at = world.loop.time()
        assert await zookeeper.end_session(key, alive.name)
        assert world.loop.time() - killed_at < 0.3
        assert zookeeper.tree.node("/broker-1") is None
        assert not await zookeeper.end_session(key)
        assert alive.states == []
        assert await zookeeper.end_session(alive.session.session_key)
        await asyncio.sleep(1.2)
        assert (alive.states[0], alive.states[-1]) == (SUSPENDED, LOST)  # both attach to it, until it is closed
        assert zookeeper.tree.node("/broker-2") is None

    play(story)


# Lost answers


async def lose_answer_to_create(world: World, zookeeper: SimulatedZooKeeper, source: str, target: str) -> Broker:
    """Creates /a while nothing gets from `source` to `target`."""
    [broker] = await started(world, zookeeper, 1)
    world.network.cut(source, target)
    reading = asyncio.ensure_future(broker.session.exists("/"))
    with pytest.raises(OutcomeUnknown) as caught:
        await broker.session.create("/a")
    assert caught.value.path == "/a"
    assert broker.session.state is SUSPENDED
    with pytest.raises(SessionSuspended):
        await reading
    return broker


def test_write_whose_answer_is_lost_has_happened() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        broker = await lose_answer_to_create(world, zookeeper, "zookeeper", "broker-1")
        world.network.heal()
        await asyncio.sleep(1.2)
        assert broker.states == [SUSPENDED, CONNECTED]
        await broker.session.sync()
        assert await broker.session.exists("/a") is not None

    play(story)


def test_write_whose_request_is_lost_has_not_happened() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        broker = await lose_answer_to_create(world, zookeeper, "broker-1", "zookeeper")
        await asyncio.sleep(10)
        world.network.heal()  # the session has expired, and the request comes too late
        await asyncio.sleep(1.2)
        assert broker.states == [SUSPENDED, LOST]
        assert zookeeper.tree.node("/a") is None

    play(story)


@pytest.mark.parametrize("is_sent_into_the_cut", [False, True])
def test_seed_decides_what_becomes_of_a_write_and_the_next_connection_shows_it(is_sent_into_the_cut: bool) -> None:
    outcomes: list[bool] = []

    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        [broker] = await started(world, zookeeper, 1)
        if is_sent_into_the_cut:
            broker.cut()
        writing = broker.do(broker.session.create("/a"))
        await asyncio.sleep(world.random("test").uniform(0, 0.0015))
        broker.cut()
        await asyncio.sleep(4.2)
        if writing.exception() is None:  # it was faster than the cut
            return
        assert isinstance(writing.exception(), OutcomeUnknown)
        world.network.heal()
        await asyncio.sleep(1.2)
        assert broker.session.state is CONNECTED
        await broker.session.sync()
        happened = await broker.session.exists("/a") is not None
        await asyncio.sleep(10)
        assert (zookeeper.tree.node("/a") is not None) == happened
        outcomes.append(happened)

    for seed in range(40):
        play(story, seed)
    assert set(outcomes) == {True, False}


def test_faults_of_connections_reach_sessions() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        [broker] = await started(world, zookeeper, 1)
        world.network.lose_answer("zookeeper", broker.name)
        with pytest.raises(OutcomeUnknown):
            await broker.session.create("/a")
        assert zookeeper.tree.node("/a") is not None
        world.network.refuse_connections("zookeeper")
        await asyncio.sleep(3)
        assert broker.states == [SUSPENDED]
        world.network.accept_connections("zookeeper")
        await asyncio.sleep(1)
        assert broker.states == [SUSPENDED, CONNECTED]

    play(story)


def test_caller_that_gives_up_does_not_disturb_the_others() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        [broker] = await started(world, zookeeper, 1)
        events: list[WatchEvent] = []
        given_up = asyncio.ensure_future(broker.session.exists("/a", events.append))
        creating = asyncio.ensure_future(broker.session.create("/a"))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await creating == "/a"
        assert await broker.session.children("/") == ["a"]
        assert events == []

    play(story)


# The ensemble


def test_ensemble_that_was_down_for_long_expires_only_who_does_not_come_back() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        alive, dead = await started(world, zookeeper, 2)
        for broker in (alive, dead):
            await broker.session.create(f"/{broker.name}", ephemeral=True)
        zookeeper.stop()
        dead.kill()
        await asyncio.sleep(30)
        assert alive.states == [SUSPENDED]
        with pytest.raises(StoreUnreachable):
            await zookeeper.session("broker-3")
        zookeeper.start()
        started_at = world.loop.time()
        await asyncio.sleep(5.9)
        assert alive.states == [SUSPENDED, CONNECTED]
        assert zookeeper.tree.node("/broker-2") is not None
        await until_gone(zookeeper, "/broker-2")
        assert 6 <= world.loop.time() - started_at < 6.6
        assert await alive.session.exists("/broker-1") is not None

    play(story)


def test_paused_ensemble_goes_on_with_all_its_sessions() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        brokers = await started(world, zookeeper, 3)
        for broker in brokers:
            await broker.session.create(f"/{broker.name}", ephemeral=True)
        assert zookeeper.process is not None
        world.loop.hold(zookeeper.process, 20)
        await asyncio.sleep(19)
        assert [broker.states for broker in brokers] == [[SUSPENDED]] * 3
        await asyncio.sleep(5)
        assert [broker.session.state for broker in brokers] == [CONNECTED] * 3
        await asyncio.sleep(20)
        assert zookeeper.tree.child_count("/") == 3

    play(story)


def test_session_that_saw_more_than_a_wiped_ensemble_has_waits_until_it_has_caught_up() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        [broker] = await started(world, zookeeper, 1)
        for number in range(5):
            await broker.session.create(f"/{number}")
        zookeeper.stop()
        zookeeper.wipe()
        zookeeper.start()
        new = await zookeeper.session("broker-2")
        assert await new.children("/") == []
        await new.create("/a")
        await asyncio.sleep(30)
        assert broker.states == [SUSPENDED]
        for _ in range(4):
            await new.set("/a", b"")
        await asyncio.sleep(1.2)
        assert broker.states == [SUSPENDED, LOST]

    play(story)


def test_restored_ensemble_has_the_nodes_and_sessions_of_that_time() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        old, closed = await started(world, zookeeper, 2)
        await old.session.create("/old", b"1", ephemeral=True)
        await closed.session.create("/closed", ephemeral=True)
        before = zookeeper.snapshot()
        await closed.session.close()
        new = Broker(world, 3)
        await new.start(zookeeper)
        await new.session.create("/new", ephemeral=True)
        zookeeper.stop()
        zookeeper.restore(before)
        zookeeper.start()
        await asyncio.sleep(1.2)
        assert (old.states, new.states) == ([SUSPENDED, CONNECTED], [SUSPENDED])
        assert await old.session.children("/") == ["closed", "old"]
        zookeeper.check_invariants()
        await until_gone(zookeeper, "/closed")
        await old.session.set("/old", b"2")
        await asyncio.sleep(1.2)
        assert new.states == [SUSPENDED, LOST]

    play(story)


def test_seed_decides_everything() -> None:
    async def story(world: World, zookeeper: SimulatedZooKeeper) -> None:
        brokers = await started(world, zookeeper, 4)

        async def work(broker: Broker) -> None:
            random = world.random(broker.name)
            while broker.session.state is not LOST:
                try:
                    await broker.session.exists("/a", lambda event: world.note(broker.name, event))
                    await broker.session.create("/a", ephemeral=random.random() < 0.5)
                    await broker.session.delete(f"/{random.choice('ab')}")
                except Exception as error:  # noqa: BLE001 - part of the trace
                    world.note(broker.name, repr(error))
                await asyncio.sleep(random.random())

        for broker in brokers:
            broker.do(work(broker))
        random = world.random("faults")
        for _ in range(3):
            await asyncio.sleep(random.uniform(0, 3))
            random.choice(brokers).cut()
            world.loop.hold(random.choice(brokers).process, 7)
            await asyncio.sleep(random.uniform(0, 6))
            world.network.heal()
        zookeeper.stop()
        await asyncio.sleep(3)
        zookeeper.start()
        await asyncio.sleep(3)

    first, second, other = play(story, 7), play(story, 7), play(story, 8)
    assert first.trace == second.trace != other.trace
