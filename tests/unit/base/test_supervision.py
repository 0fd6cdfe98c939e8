"""Whose bug an exception is, on both event loops."""

import asyncio
import contextvars
import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from barnabas.base.supervision import report_bug, supervised
from barnabas.base.tasks import Tasks
from tests.support.network import run, until

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory:
    return request.param  # type: ignore[no-any-return]


def stumble() -> None:
    raise ValueError("our bug")


async def stumble_later() -> None:
    await asyncio.sleep(0)
    stumble()


class Owner:
    """One broker's place, without the broker."""

    def __init__(self) -> None:
        self.bugs: list[BaseException] = []
        self.context: contextvars.Context

    @property
    def heard(self) -> list[str]:
        return [str(bug) for bug in self.bugs]


@contextmanager
def owners(count: int = 2) -> Iterator[list[Owner]]:
    loop = asyncio.get_running_loop()
    found = [Owner() for _ in range(count)]
    entered = []
    for owner in found:
        manager = supervised(loop, owner.bugs.append)
        owner.context = manager.__enter__()
        entered.append(manager)
    try:
        yield found
    finally:
        for manager in entered:
            manager.__exit__(None, None, None)


def test_exception_of_a_callback_reaches_the_owner_whose_task_made_it(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        async def begin() -> None:
            loop.call_soon(stumble)
            loop.call_later(0.001, stumble)
            loop.run_in_executor(None, int).add_done_callback(lambda _: stumble())

        with owners() as (first, second):
            await loop.create_task(begin(), context=second.context)
            await until(lambda: len(second.bugs) == 3)
            assert first.bugs == []

    run(scenario(), loop_factory)


def test_exception_of_a_protocol_reaches_the_owner_of_its_context(loop_factory: LoopFactory) -> None:
    class Protocol(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.context = contextvars.copy_context()

        def get_buffer(self, sizehint: int) -> bytearray:
            return bytearray(10)

        def buffer_updated(self, nbytes: int) -> None:
            stumble()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        async def begin(ours: socket.socket) -> None:
            await loop.connect_accepted_socket(Protocol, ours)

        with owners() as (first, second):
            ours, theirs = socket.socketpair()
            with theirs:
                ours.setblocking(False)
                await loop.create_task(begin(ours), context=first.context)
                theirs.send(b"x")
                await until(lambda: bool(first.bugs))
            assert (first.heard, second.heard) == (["our bug"], [])

    run(scenario(), loop_factory)


def test_exception_of_a_task_reaches_the_owner_of_its_tasks_at_once_whoever_starts_it(
    loop_factory: LoopFactory,
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with owners() as (first, second):
            tasks = first.context.run(Tasks, loop)
            kept = tasks.start(stumble_later())  # from no owner's context
            await tasks.drain()
            assert kept.done()
            await asyncio.sleep(0)
            assert (first.heard, second.heard) == (["our bug"], [])

    run(scenario(), loop_factory)


def test_exception_that_names_no_owner_reaches_all_of_them(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with owners() as (first, second):
            loop.call_soon(stumble)
            await asyncio.sleep(0)
            report_bug(loop, "said by hand", ValueError("another"))
            assert first.heard == second.heard == ["our bug", "another"]

    run(scenario(), loop_factory)


def test_exception_that_is_found_as_garbage_is_only_passed_on(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        passed_on: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: passed_on.append(context))
        with owners(1) as (owner,):
            asyncio.ensure_future(stumble_later())  # noqa: RUF006 - nobody keeps it: that is the case
            await asyncio.sleep(0.01)
            gc.collect()
            assert [str(context["exception"]) for context in passed_on] == ["our bug"]
            assert owner.bugs == []

    run(scenario(), loop_factory)


def test_what_comes_after_an_owner_has_left_is_passed_on(loop_factory: LoopFactory) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        passed_on: list[dict[str, Any]] = []

        def previous(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            passed_on.append(context)

        loop.set_exception_handler(previous)
        with owners(1) as (staying,):
            with owners(1) as (leaving,):
                leaving.context.run(loop.call_later, 0.001, stumble)
            await until(lambda: bool(passed_on))
            assert staying.bugs == leaving.bugs == []
        assert loop.get_exception_handler() is previous

    run(scenario(), loop_factory)


def test_handler_that_somebody_sets_over_ours_stays() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def theirs(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None: ...

        with owners(1):
            loop.set_exception_handler(theirs)
        assert loop.get_exception_handler() is theirs

    run(scenario())


def test_tasks_stop_in_order_the_latest_first() -> None:
    async def scenario() -> None:
        tasks = Tasks(asyncio.get_running_loop())
        ended = []

        async def wait(name: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append(name)

        for name in "abc":
            tasks.start(wait(name))
        await asyncio.sleep(0)
        await tasks.stop()
        assert ended == ["c", "b", "a"]
        assert len(tasks) == 0

    run(scenario())


def test_tasks_drain_waits_for_those_that_are_started_meanwhile() -> None:
    async def scenario() -> None:
        tasks = Tasks(asyncio.get_running_loop())
        ended = []

        async def work(left: int) -> None:
            await asyncio.sleep(0)
            if left:
                tasks.start(work(left - 1))
            ended.append(left)

        tasks.start(work(2))
        await tasks.drain()
        assert ended == [2, 1, 0]

    run(scenario())
