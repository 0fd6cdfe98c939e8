"""Requests and replies of one connection, over real sockets."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from barnabas.base.errors import BarnabasError
from barnabas.net.connection import Connection, ConnectionOptions
from barnabas.net.server import ServerOptions
from tests.support.network import LENGTH, FramingSlot, framed, is_closed_by_peer, read_frame, run, serving, until


def _echo(slot: FramingSlot, frame: memoryview) -> None:
    slot.complete(bytes(frame))


def test_pipelined_requests_are_answered_in_order() -> None:
    async def scenario() -> None:
        async with serving(answer=_echo) as served:
            reader, writer = await served.connect()
            bodies = [f"request {number}".encode() for number in range(1000)]
            writer.write(b"".join(map(framed, bodies)))
            assert [await read_frame(reader) for _ in bodies] == bodies
            writer.close()

    run(scenario())


def test_replies_completed_out_of_order_leave_in_order_of_requests() -> None:
    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a") + framed(b"b") + framed(b"c"))
            handler = await served.handler()
            (first, _), (second, _), (third, _) = [await handler.requests.get() for _ in range(3)]
            third.complete(b"3")
            second.complete([b"2", bytearray(b"nd"), memoryview(b"!")])
            await asyncio.sleep(0)
            assert served.server.counters.bytes_out == 0
            first.complete(b"1")
            assert [await read_frame(reader) for _ in range(3)] == [b"1", b"2nd!", b"3"]
            writer.close()

    run(scenario())


def test_request_without_reply_leaves_no_gap() -> None:
    async def scenario() -> None:
        async with serving(
            answer=lambda slot, frame: slot.complete(None if frame[:1] == b"-" else bytes(frame))
        ) as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a") + framed(b"-") + framed(b"-") + framed(b"b"))
            assert [await read_frame(reader) for _ in range(2)] == [b"a", b"b"]
            assert not served.handlers[0].connection.is_awaiting_answer
            writer.close()

    run(scenario())


def test_replies_completed_later_leave_at_once_when_flushed() -> None:
    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a") + framed(b"b"))
            handler = await served.handler()
            slots = [(await handler.requests.get())[0] for _ in range(2)]
            for slot in slots:
                slot.complete(b"done")
            assert served.server.counters.bytes_out == 0
            served.server.replies.flush()
            assert served.server.counters.bytes_out == 2 * len(framed(b"done"))
            assert [await read_frame(reader) for _ in range(2)] == [b"done"] * 2
            writer.close()

    run(scenario())


class _RecordingTransport:
    """Writes as a list of calls, each with its bytes joined."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, buffers: list[bytes]) -> None:
        self.writes.append(b"".join(buffers))


def test_replies_of_one_read_and_of_one_tick_leave_in_one_write() -> None:
    async def scenario() -> None:
        async with serving(answer=None) as served:
            connection = served.server.admit("TEST", ("127.0.0.1", 1), served.make_handler)
            assert connection is not None
            transport = _RecordingTransport()
            connection.connection_made(transport)  # type: ignore[arg-type]
            handler = await served.handler()
            handler.answer = _echo
            _feed(connection, framed(b"a") + framed(b"b") + framed(b"c"))
            assert transport.writes == [framed(b"a") + framed(b"b") + framed(b"c")]

            handler.answer = None
            _feed(connection, framed(b"d") + framed(b"e"))
            for slot in [(await handler.requests.get())[0] for _ in range(2)]:
                slot.complete(b"late")
            await asyncio.sleep(0)
            assert transport.writes[1:] == [framed(b"late") * 2]
            connection.connection_lost(None)

    run(scenario())


def _feed(connection: Connection, data: bytes) -> None:
    connection.get_buffer(0)[: len(data)] = data
    connection.buffer_updated(len(data))


def test_frame_stays_as_it_was_while_it_is_kept() -> None:
    async def scenario() -> None:
        async with serving() as served:
            _, writer = await served.connect()
            bodies = [bytes([number]) * 3000 for number in range(60)]
            writer.write(b"".join(map(framed, bodies)))
            handler = await served.handler()
            kept = []
            for _ in bodies:
                slot, frame = await handler.requests.get()
                slot.complete(None)
                kept.append(frame)
            assert [bytes(frame) for frame in kept] == bodies
            writer.close()

    run(scenario())


@pytest.mark.parametrize("length", [-1, 1001, 2**31 - 1])
def test_bad_length_closes_only_its_connection(length: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        options = ServerOptions(connection=ConnectionOptions(request_bytes_max=1000))
        async with serving(options, answer=_echo) as served:
            reader, writer = await served.connect()
            other_reader, other_writer = await served.connect()
            writer.write(LENGTH.pack(length))
            assert await is_closed_by_peer(reader)
            other_writer.write(framed(b"still here"))
            assert await read_frame(other_reader) == b"still here"
            writer.close()
            other_writer.close()

    run(scenario())
    (record,) = caplog.records
    assert f"a request of {length} bytes" in record.getMessage()


def test_error_in_a_request_closes_its_connection_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(slot: FramingSlot, frame: memoryview) -> None:
        if frame == b"bad":
            raise BarnabasError("not a request")
        slot.complete(b"good")

    async def scenario() -> None:
        async with serving(answer=refuse) as served:
            reader, writer = await served.connect()
            other_reader, other_writer = await served.connect()
            writer.write(framed(b"bad") + framed(b"never seen"))
            assert await is_closed_by_peer(reader)
            other_writer.write(framed(b"ok"))
            assert await read_frame(other_reader) == b"good"
            assert served.server.counters.requests_in == 2
            writer.close()
            other_writer.close()

    run(scenario())
    assert [record.getMessage().endswith("closed: not a request") for record in caplog.records] == [True]


def test_failed_slot_closes_its_connection() -> None:
    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a"))
            handler = await served.handler()
            slot, _ = await handler.requests.get()
            slot.fail(BarnabasError("acks=0 went wrong"))
            assert await is_closed_by_peer(reader)
            await handler.closed.wait()
            writer.close()

    run(scenario())


def test_bug_in_a_handler_closes_its_connection_and_reaches_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    reported: list[dict[str, Any]] = []

    def stumble(slot: FramingSlot, frame: memoryview) -> None:
        raise AssertionError("our bug")

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        async with serving(answer=stumble) as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a"))
            assert await is_closed_by_peer(reader)
            writer.close()

    run(scenario())
    assert [str(context["exception"]) for context in reported] == ["our bug"]


def test_reading_pauses_at_too_many_unanswered_requests_and_resumes() -> None:
    async def scenario() -> None:
        options = ServerOptions(connection=ConnectionOptions(unanswered_max=8))
        async with serving(options) as served:
            reader, writer = await served.connect()
            bodies = [str(number).encode() for number in range(100)]
            writer.write(b"".join(map(framed, bodies)))
            handler = await served.handler()
            answered = 0
            while answered < len(bodies):
                slot, frame = await handler.requests.get()
                assert handler.requests.qsize() < 8
                assert served.server.counters.requests_in <= answered + 8
                slot.complete(bytes(frame))
                answered += 1
            assert [await read_frame(reader) for _ in bodies] == bodies
            writer.close()

    run(scenario())


def test_requests_of_all_connections_stay_within_the_budget() -> None:
    async def scenario() -> None:
        async with serving(ServerOptions(queued_request_bytes_max=500_000)) as served:
            clients = [await served.connect() for _ in range(10)]
            for _, writer in clients:
                writer.write(framed(bytes(200_000)) * 3)
            answered = 0
            while answered < 30:
                await until(lambda: any(handler.requests.qsize() for handler in served.handlers))
                waiting = [handler for handler in served.handlers if handler.requests.qsize()]
                # Two and a half fit; one more may exceed, and those that had begun are received to their end.
                assert sum(handler.requests.qsize() for handler in waiting) <= 3
                slot, _ = waiting[0].requests.get_nowait()
                slot.complete(b"ok")
                answered += 1
            for reader, writer in clients:
                assert [await read_frame(reader) for _ in range(3)] == [b"ok"] * 3
                writer.close()

    run(scenario())


def test_budget_of_a_lost_connection_is_given_back() -> None:
    async def scenario() -> None:
        async with serving(ServerOptions(queued_request_bytes_max=1000)) as served:
            _, first_writer = await served.connect()
            first_writer.write(framed(bytes(900)) + LENGTH.pack(50_000) + bytes(10))
            await (await served.handler()).requests.get()
            second_reader, second_writer = await served.connect()
            second_writer.write(framed(bytes(600)))
            first_writer.close()
            slot, _ = await (await served.handler(1)).requests.get()
            slot.complete(b"room again")
            assert await read_frame(second_reader) == b"room again"
            second_writer.close()

    run(scenario())


def test_answer_after_the_connection_ended_is_dropped() -> None:
    async def scenario() -> None:
        async with serving() as served:
            _, writer = await served.connect()
            writer.write(framed(b"a"))
            handler = await served.handler()
            slot, _ = await handler.requests.get()
            writer.close()
            await handler.closed.wait()
            slot.complete(b"too late")
            assert served.server.counters.bytes_out == 0
            assert served.server.counters.connections_open == 0

    run(scenario())


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_answers_between_the_end_of_the_peer_and_the_loss_of_the_connection_are_dropped(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        async with serving() as served:
            _, writer = await served.connect()
            writer.write(framed(b"a") + framed(b"b"))
            handler = await served.handler()
            slots = [(await handler.requests.get())[0] for _ in range(2)]

            def eof_received(connection: Connection) -> None:
                for slot in reversed(slots):
                    slot.complete(b"too late")

            monkeypatch.setattr(Connection, "eof_received", eof_received)
            writer.close()
            await handler.closed.wait()
        assert failures == []

    run(scenario(), loop_factory)
