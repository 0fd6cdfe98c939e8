"""The calls of one session, in the order in which they were issued: those under way, and those that wait.

A limited number is handed to the connection at a time: each leaves a byte in the socket that wakes kazoo's thread, and
on Linux 278 of them fill it. Owner: the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from barnabas.base.errors import BarnabasError
from barnabas.metadata.errors import SessionLost, SessionSuspended
from barnabas.metadata.zookeeper.zookeeper_calls import Call, Reply
from barnabas.metadata.zookeeper.zookeeper_options import ZooKeeperOptions

CALLS_UNDER_WAY_MAX: Final = 100

Submit: TypeAlias = Callable[[Call, Reply, ZooKeeperOptions], bool]
"""Hands a call to the connection; False if there is none."""


class _Asked(NamedTuple):
    call: Call
    options: ZooKeeperOptions
    on_success: Callable[[], None] | None
    future: asyncio.Future[Any]


class CallQueue:
    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._waiting: deque[_Asked] = deque()
        self._under_way = 0

    def ask(
        self, call: Call, options: ZooKeeperOptions, on_success: Callable[[], None] | None = None
    ) -> asyncio.Future[Any]:
        """The result, or the error. `on_success` is called when the answer comes, before the caller goes on."""
        asked = _Asked(call, options, on_success, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        self._send_waiting()
        return asked.future

    def refuse_waiting(self, error: SessionLost) -> None:
        """Those under way are answered by the connection, with an error if it is lost."""
        waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            if not asked.future.done():
                asked.future.set_exception(error)

    def _send_waiting(self) -> None:
        while self._waiting and self._under_way < CALLS_UNDER_WAY_MAX:
            asked = self._waiting.popleft()
            if asked.future.done():  # the caller was cancelled
                continue
            if self._submit(asked.call, partial(self._answer, asked), asked.options):
                self._under_way += 1
            else:
                asked.future.set_exception(SessionSuspended("the connection to ZooKeeper has just been lost"))

    def _answer(self, asked: _Asked, result: Any | BarnabasError) -> None:
        self._under_way -= 1
        if not asked.future.done():
            if isinstance(result, BarnabasError):
                asked.future.set_exception(result)
            else:
                if asked.on_success is not None:
                    asked.on_success()
                asked.future.set_result(result)
        self._send_waiting()
