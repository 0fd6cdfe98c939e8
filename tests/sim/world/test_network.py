"""The simulated network: order, cuts, resets, half-open connections, hosts without power."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.net.stream import ListenAddress
from barnabas.sim.world.network import SimulatedListening
from barnabas.sim.world.process import Process
from barnabas.sim.world.transport import SimulatedTransport
from barnabas.sim.world.world import World


class End(asyncio.BufferedProtocol):
    """One end of a connection, which notes what happens to it."""

    def __init__(self, buffer_bytes: int = 1 << 16) -> None:
        self.received = bytearray()
        self.lost: list[Exception | None] = []
        self.pauses: list[str] = []
        self._buffer = bytearray(buffer_bytes)

    transport: SimulatedTransport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]

    def pause_writing(self) -> None:
        self.pauses.append("pause")

    def resume_writing(self) -> None:
        self.pauses.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Server:
    def __init__(self, world: World) -> None:
        self.world = world
        self.process = world.process("server")
        self.ends: list[End] = []
        self.is_open = True
        self.listening: SimulatedListening

    def admit(self, peer: tuple[str, int]) -> asyncio.BufferedProtocol | None:
        assert peer[0] == "client"
        if not self.is_open:
            return None
        self.ends.append(End())
        return self.ends[-1]

    def abandon(self, protocol: asyncio.BufferedProtocol) -> None:
        raise AssertionError("there are no handshakes")

    async def start(self) -> None:
        async def listen() -> None:
            self.listening = await self.world.network.at("server").listen(ListenAddress("", 9092))
            self.listening.accept(self)

        await self.world.spawn(self.process, listen())


def play(story: Callable[[World, Server, Callable[[], Coroutine[Any, Any, End]]], Coroutine[Any, Any, None]]) -> World:
    """Runs a story with a server that listens, and with a way to connect to it."""
    world = World(3, seconds_max=1000.0)

    async def main() -> None:
        server, client = Server(world), world.process("client")
        await server.start()

        async def connect() -> End:
            async def open_connection() -> End:
                end = End()
                await world.network.at("client").connect("server", 9092, end)
                return end

            return await world.spawn(client, open_connection())

        await story(world, server, connect)

    world.run(main())
    return world


async def settle() -> None:
    await asyncio.sleep(0.1)


def watched(end: End) -> End:
    """Without the watch, which reads Kafka's frames."""
    end.transport.watch = None
    return end


def test_bytes_arrive_in_order_whole_and_in_pieces() -> None:
    async def story(world: World, server: Server, connect: Callable[[], Coroutine[Any, Any, End]]) -> None:
        client = await connect()
        await settle()
        watched(server.ends[0])
        sent = b"".join(b"%04d" % number for number in range(2000))
        for start in range(0, len(sent), 37):
            client.transport.write(sent[start : start + 37])
        await settle()
        assert server.ends[0].received == sent

    play(story)


def test_end_is_seen_after_everything_that_was_written_before_it() -> None:
    async def story(world: World, server: Server, connect: Callable[[], Coroutine[Any, Any, End]]) -> None:
        client = await connect()
        await settle()
        watched(server.ends[0])
        client.transport.write(b"last words")
        client.transport.close()
        client.transport.write(b"too late")
        await settle()
        assert (server.ends[0].received, server.ends[0].lost, client.lost) == (b"last words", [None], [None])

    play(story)


def test_what_was_sent_through_a_cut_arrives_when_it_is_healed() -> None:
    async def story(world: World, server: Server, connect: Callable[[], Coroutine[Any, Any, End]]) -> None:
        client = await connect()
        await settle()
        far = watched(server.ends[0])
        world.network.cut("client", "server")
        client.transport.write(b"question")
        far.transport.write(b"the other way is open")
        await asyncio.sleep(50)
        assert (far.received, client.received) == (b"", b"the other way is open")
        world.network.heal()
        client.transport.write(b", and more")
        await settle()
        assert far.received == b"question, and more"

    play(story)


def test_connect_waits_for_a_way_and_is_refused_where_nobody_listens() -> None:
    async def story(world: World, server: Server, connect: Callable[[], Coroutine[Any, Any, End]]) -> None:
        world.network.cut("server", "client")
        connecting = asyncio.ensure_future(connect())
        await asyncio.sleep(20)
        assert not connecting.done()
        world.network.heal()
        await connecting
        world.network.refuse_connections("server")
        with pytest.raises(ConnectionRefusedError):
            await connect()
        world.network.accept_connections("server")
        await server.listening.close()
        with pytest.raises(ConnectionRefusedError):
            await connect()

    play(story)


def test_connection_that_is_not_admitted_is_reset() -> None:
    async def story(world: World, server: Server, connect: Callable[[], Coroutine[Any, Any, End]]) -> None:
        server.is_open = False
        client = await connect()
        await settle()
        assert isinstance(client.lost[0], ConnectionResetError)

    play(story)


def test_connection_breaks_at_the_byte_that_was_chosen() -> None:
    async def story(world: World, server: Server, connect: Callable[[], Coroutine[Any, Any, End]]) -> None:
        client = await connect()
        await settle()
        far = watched(server.ends[0])
        assert world.network.break_connection("server", after_bytes=7)
        client.transport.write(b"1234")
        client.transport.write(b"5678")
        await settle()
        assert far.received == b"1234567"
        assert isinstance(far.lost[0], ConnectionResetError)
        assert isinstance(client.lost[0], ConnectionResetError)

    play(story)


def test_host_closes_the_connections_of_a_process_that_died() -> None:
    async def story(world: World, server: Server, connect: Callable[[], Coroutine[Any, Any, End]]) -> None:
        client = await connect()
        await settle()
        watched(server.ends[0]).transport.write(b"written before")
        server.process.die()
        world.network.process_ended(server.process)
        server.ends[0].transport.write(b"a dead process writes nothing")
        await settle()
        assert client.received == b"written before"
        assert isinstance(client.lost[0], ConnectionResetError)
        assert server.ends[0].lost == []

    play(story)


def test_loss_of_power_is_noticed_only_when_the_host_is_back_and_something_was_sent() -> None:
    async def story(world: World, server: Server, connect: Callable[[], Coroutine[Any, Any, End]]) -> None:
        silent, asking = await connect(), await connect()
        await settle()
        server.process.die()
        world.network.power_lost("server", server.process)
        asking.transport.write(b"are you there?")
        await asyncio.sleep(100)
        assert (silent.lost, asking.lost) == ([], [])
        world.network.power_back("server")
        await settle()
        assert isinstance(asking.lost[0], ConnectionResetError)
        assert silent.lost == []
        silent.transport.write(b"and now?")
        await settle()
        assert isinstance(silent.lost[0], ConnectionResetError)

    play(story)


def test_reader_that_is_held_or_pauses_holds_up_the_writer() -> None:
    async def story(world: World, server: Server, connect: Callable[[], Coroutine[Any, Any, End]]) -> None:
        client = await connect()
        await settle()
        far = watched(server.ends[0])
        far.transport.pause_reading()
        client.transport.write(bytes(100_000))
        await settle()
        assert (client.pauses, far.received) == (["pause"], b"")
        far.transport.resume_reading()
        await settle()
        assert (client.pauses, len(far.received)) == (["pause", "resume"], 100_000)
        world.loop.hold(server.process, 5.0)
        client.transport.write(bytes(100_000))
        await asyncio.sleep(4)
        assert client.pauses == ["pause", "resume", "pause"]
        await asyncio.sleep(2)
        assert client.pauses[-1] == "resume"

    play(story)


def test_slow_link_takes_its_time() -> None:
    async def story(world: World, server: Server, connect: Callable[[], Coroutine[Any, Any, End]]) -> None:
        client = await connect()
        await settle()
        far = watched(server.ends[0])
        world.network.link("client", "server").bytes_per_second = 1000.0
        client.transport.write(bytes(5000))
        await asyncio.sleep(2)
        assert len(far.received) < 5000
        await asyncio.sleep(9)
        assert len(far.received) == 5000

    play(story)


def test_open_connections_are_counted_by_process() -> None:
    async def story(world: World, server: Server, connect: Callable[[], Coroutine[Any, Any, End]]) -> None:
        client = await connect()
        await settle()
        assert world.network.open_connections(server.process) == 1
        assert world.network.open_connections(Process("other")) == 0
        client.transport.abort()
        await settle()
        assert world.network.open_connections(server.process) == 0

    play(story)
