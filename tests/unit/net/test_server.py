"""Listeners, limits, idle connections, stopping."""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import AsyncIterator

import pytest

from barnabas.net.connection import Connection
from barnabas.net.errors import ListenFailed
from barnabas.net.idle import IdleWheel
from barnabas.net.server import ListenerSpec, ServerOptions
from barnabas.net.sockets import SocketListening
from barnabas.net.wakefulness import Wakefulness
from tests.support.network import FramingSlot, Served, framed, is_closed_by_peer, read_frame, run, serving, until


def _echo(slot: FramingSlot, frame: memoryview) -> None:
    slot.complete(bytes(frame))


def test_listeners_have_names_and_advertised_addresses() -> None:
    async def scenario() -> None:
        async with serving(answer=_echo) as served:
            outside = await served.server.listen(
                ListenerSpec("OUTSIDE", "127.0.0.1", 0, advertised_host="broker.example", advertised_port=9999)
            )
            everywhere = await served.server.listen(ListenerSpec("ANY", "", 0))
            served.server.accept(served.make_handler)
            assert (outside.advertised_host, outside.advertised_port) == ("broker.example", 9999)
            assert (served.listener.advertised_host, served.listener.advertised_port) == (
                "127.0.0.1",
                served.listener.port,
            )
            assert everywhere.advertised_host == socket.gethostname()
            for port in (served.listener.port, outside.port, everywhere.port):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(framed(b"hello"))
                assert await read_frame(reader) == b"hello"
                writer.close()
            names = [handler.connection.listener_name for handler in served.handlers]
            assert names == ["TEST", "OUTSIDE", "ANY"]
            assert {handler.connection.peer_host for handler in served.handlers} == {"127.0.0.1"}

    run(scenario())


def test_taken_port_is_said_with_its_address() -> None:
    async def scenario() -> None:
        async with serving() as served:
            port = served.listener.port
            with pytest.raises(ListenFailed, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
                await served.server.listen(ListenerSpec("AGAIN", "127.0.0.1", port))

    run(scenario())


def test_connection_over_the_limit_is_closed_at_once_and_others_stay(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(ServerOptions(connections_max=2), answer=_echo) as served:
            clients = [await served.connect() for _ in range(2)]
            for _ in range(20):
                reader, writer = await served.connect()
                assert await is_closed_by_peer(reader)
                writer.close()
            for reader, writer in clients:
                writer.write(framed(b"a"))
                assert await read_frame(reader) == b"a"
            assert served.server.counters.connections_refused == 20
            clients[0][1].close()
            await until(lambda: served.server.counters.connections_open == 1)
            reader, writer = await served.connect()
            writer.write(framed(b"room"))
            assert await read_frame(reader) == b"room"
            writer.close()
            clients[1][1].close()

    run(scenario())
    assert len(caplog.records) == 1, "a flood is logged once"
    assert "max.connections=2 are open" in caplog.records[0].getMessage()


def test_listener_of_brokers_has_no_limit_and_counts_for_none() -> None:
    async def scenario() -> None:
        options = ServerOptions(connections_max=2, connections_per_host_max=2, unlimited_listener="BROKERS")
        async with serving(options, answer=_echo, other=ListenerSpec("BROKERS", "127.0.0.1", 0)) as served:
            assert served.other is not None
            brokers = [await asyncio.open_connection("127.0.0.1", served.other.port) for _ in range(4)]
            clients = [await served.connect() for _ in range(3)]
            assert await is_closed_by_peer(clients[2][0])
            brokers.append(await asyncio.open_connection("127.0.0.1", served.other.port))
            for reader, writer in (*clients[:2], *brokers):
                writer.write(framed(b"a"))
                assert await read_frame(reader) == b"a"
            for _, writer in (*clients, *brokers):
                writer.close()
            await until(lambda: served.server.counters.connections_open == 0)
            reader, writer = await served.connect()
            writer.write(framed(b"room"))
            assert await read_frame(reader) == b"room"
            writer.close()

    run(scenario())


@pytest.mark.parametrize(("overrides", "allowed"), [({}, 1), ({"127.0.0.1": 3}, 3), ({"127.0.0.1": 0}, 0)])
def test_limit_per_address_holds_with_its_exceptions(overrides: dict[str, int], allowed: int) -> None:
    async def scenario() -> None:
        options = ServerOptions(connections_per_host_max=1, connections_per_host_overrides=overrides)
        async with serving(options) as served:
            clients = [await served.connect() for _ in range(5)]
            await until(lambda: served.server.counters.connections_refused == 5 - allowed)
            assert served.server.counters.connections_open == allowed
            for _, writer in clients:
                writer.close()
            await until(lambda: served.server.counters.connections_open == 0)

    run(scenario())


def test_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def scenario() -> None:
        async with serving(ServerOptions(idle_seconds=0.2)) as served:
            idle_reader, idle_writer = await served.connect()
            half_reader, half_writer = await served.connect()
            half_writer.write(b"\0\0")
            waiting_reader, waiting_writer = await served.connect()
            waiting_writer.write(framed(b"long poll"))
            slot, _ = await (await served.handler(2)).requests.get()
            assert await is_closed_by_peer(idle_reader)
            assert await is_closed_by_peer(half_reader)
            assert served.server.counters.connections_closed_idle == 2
            slot.complete(b"at last")
            assert await read_frame(waiting_reader) == b"at last"
            for writer in (idle_writer, half_writer, waiting_writer):
                writer.close()

    run(scenario())


class _Watched:
    def __init__(self) -> None:
        self.active_turn = 0
        self.idle_bucket = 0
        self.is_awaiting_answer = False
        self.closings = 0

    def close_idle(self) -> None:
        self.closings += 1


class _TimerLoop:
    """The one call of a loop that the wheel needs."""

    def __init__(self) -> None:
        self.callbacks: list[object] = []

    def call_later(self, delay: float, callback: object) -> None:
        self.callbacks.append(callback)

    def turn(self) -> None:
        self.callbacks.pop(0)()  # type: ignore[operator]


def test_idle_wheel_closes_after_one_idle_time_without_a_byte() -> None:
    loop = _TimerLoop()
    wheel = IdleWheel(loop, 1.6)  # type: ignore[arg-type]
    wheel.start()
    silent, active, gone = _Watched(), _Watched(), _Watched()
    for watched in (silent, active, gone):
        wheel.add(watched)
    wheel.discard(gone)
    for turn in range(1, 100):
        assert silent.closings == (turn > 16)
        if turn <= 50:
            active.active_turn = wheel.turn
        assert active.closings == (turn > 65)
        loop.turn()
    assert gone.closings == 0


def test_stop_answers_what_was_taken_and_accepts_nobody() -> None:
    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            idle_reader, idle_writer = await served.connect()
            writer.write(framed(b"a") + framed(b"b"))
            handler = await served.handler()
            slots = [(await handler.requests.get())[0] for _ in range(2)]
            stopping = asyncio.ensure_future(served.server.stop(grace_seconds=5))
            assert await is_closed_by_peer(idle_reader)
            with pytest.raises(ConnectionRefusedError):
                await served.connect()
            big = os.urandom(8 << 20)
            slots[0].complete(big)
            slots[1].complete(b"done")
            assert await read_frame(reader) == big
            assert await read_frame(reader) == b"done"
            assert await is_closed_by_peer(reader)
            await stopping
            writer.close()
            idle_writer.close()

    run(scenario())


@contextlib.asynccontextmanager
async def just_accepted(served: Served, turns: int) -> AsyncIterator[socket.socket]:
    """A client whose connection the server has taken so many turns of the loop ago."""
    with socket.create_connection(("127.0.0.1", served.listener.port), timeout=60) as client:
        (listening,) = served.server._listening.values()
        assert isinstance(listening, SocketListening)
        listening._accept_waiting()
        for _ in range(turns):
            await asyncio.sleep(0)
        yield client


@pytest.mark.parametrize("turns", range(4))
def test_stop_ends_a_connection_that_was_accepted_a_moment_ago(turns: int) -> None:
    async def scenario() -> None:
        async with serving() as served, just_accepted(served, turns) as client:
            await served.server.stop(grace_seconds=5)
            assert served.server.counters.connections_open == 0
            assert await asyncio.to_thread(client.recv, 1) == b""

    run(scenario())


@pytest.mark.parametrize("turns", range(4))
def test_dropping_ends_a_connection_that_was_accepted_a_moment_ago(turns: int) -> None:
    async def scenario() -> None:
        async with serving() as served, just_accepted(served, turns) as client:
            served.server.drop_connections()
            await until(lambda: not served.server.counters.connections_open)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.to_thread(client.recv, 1) == b""

    run(scenario())


def test_stop_aborts_at_the_deadline_what_does_not_finish(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a"))
            handler = await served.handler()
            await handler.requests.get()
            await served.server.stop(grace_seconds=0.05)
            assert handler.closed.is_set()
            assert await is_closed_by_peer(reader)
            writer.close()

    run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "closing connections that did not finish in 0.05 s: 1"
    ]


def test_options_replaced_at_run_time_hold_for_new_connections() -> None:
    async def scenario() -> None:
        async with serving() as served:
            served.server.options = ServerOptions(connections_max=0)
            reader, writer = await served.connect()
            assert await is_closed_by_peer(reader)
            writer.close()

    run(scenario())


def test_running_out_of_descriptors_pauses_accepting_and_heals(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(answer=_echo) as served:
            reader, writer = await served.connect()
            waiting = socket.socket()
            address = socket.getaddrinfo("127.0.0.1", served.listener.port)[0][4]
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            lowest_free = os.dup(0)
            os.close(lowest_free)
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
                waiting.connect(address)  # the kernel shakes hands: it is in the backlog
                waiting.setblocking(False)
                await until(lambda: bool(caplog.records))
                writer.write(framed(b"others are served"))
                assert await read_frame(reader) == b"others are served"
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            late_reader, late_writer = await asyncio.open_connection(sock=waiting)
            late_writer.write(framed(b"in the end"))
            assert await read_frame(late_reader) == b"in the end"
            late_writer.close()
            writer.close()

    run(scenario())
    assert len(caplog.records) == 1, "paused, not spinning"
    assert "Too many open files" in caplog.records[0].getMessage()


def test_connection_is_named_in_logs_by_listener_and_peer() -> None:
    async def scenario() -> None:
        async with serving() as served:
            _, writer = await served.connect()
            connection: Connection = (await served.handler()).connection
            peer_port = writer.get_extra_info("sockname")[1]
            assert repr(connection) == f"<connection TEST 127.0.0.1:{peer_port}>"
            writer.close()

    run(scenario())


def test_loop_stays_awake_after_a_request_and_then_sleeps() -> None:
    async def scenario() -> None:
        turns: list[float] = []
        now = [0.0]
        wakefulness = Wakefulness(asyncio.get_running_loop(), lambda: now[0], 1.0)
        wakefulness.is_stirred = True
        wakefulness.wake()
        while wakefulness.is_awake:
            turns.append(now[0])
            now[0] += 0.25
            await asyncio.sleep(0)
        assert len(turns) in (5, 6)  # a second's worth of quarters
        assert not wakefulness.is_stirred

    run(scenario())


def test_requests_are_answered_whether_the_loop_sleeps_or_stays_awake() -> None:
    async def scenario(awake_seconds: float) -> None:
        async with serving(ServerOptions(awake_seconds=awake_seconds), answer=_echo) as served:
            reader, writer = await served.connect()
            for turn in range(50):
                writer.write(framed(b"%d" % turn))
                assert await read_frame(reader) == b"%d" % turn
            writer.close()

    for awake_seconds in (0.0, 0.0001, 0.01):
        run(scenario(awake_seconds))
