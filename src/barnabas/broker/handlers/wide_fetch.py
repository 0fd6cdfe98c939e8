"""A fetch of very many partitions: decoded, read and encoded in slices, because others wait meanwhile.

The rules are those of `fetch`; only that a fetch that waits is read anew when its turn comes, once for all partitions
that have moved by then.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import NO_EPOCH
from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.fetch_sessions import Partitions
from barnabas.broker.handlers.fetch_attempt import ISOLATION_LEVELS, Attempt, wanted_of
from barnabas.broker.request import Request
from barnabas.broker.slices import Slices
from barnabas.replication.partition import Partition
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import MalformedRequest
from barnabas.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas.wire.fetch_response import encode_fetch_response_in_steps
from barnabas.wire.messages import decode_request_in_steps
from barnabas.wire.steps import Steps

if TYPE_CHECKING:
    from barnabas.broker.handlers.fetch import FetchHandler

NOTHING: Final = memoryview(b"")
_READ_TOGETHER: Final = 20


class WideFetches:
    def __init__(self, handler: "FetchHandler", loop: asyncio.AbstractEventLoop, slices: Slices) -> None:
        self._handler = handler
        self._loop = loop
        self._slices = slices

    async def serve(self, request: Request) -> None:
        """From the bytes to the answer."""
        slices = self._slices
        await slices.begin()
        request.check_wanted()
        fetch = await slices.finish(decode_wide_fetch(request.version, request.body), request.check_wanted)
        request.body = NOTHING  # so that the buffer it arrived in does not wait, too
        if fetch.isolation_level not in ISOLATION_LEVELS:
            raise MalformedRequest(f"there is no isolation level {fetch.isolation_level}")
        wanted: Partitions = OrderedDict()
        async for key, one in slices.each(wanted_of(fetch)):
            wanted[key] = one
        plan = self._handler.plan(request, fetch, wanted)
        fetch.topics = ()  # given back now, so that not everything is given back at the end, at once
        if plan is not None:
            await self.answer(self._handler.attempt(request, fetch, plan))

    async def answer(self, attempt: Attempt) -> None:
        try:
            if not await self._read(attempt) and attempt.fetch.wait_ms_max > 0:
                attempt.release()
                await self._wait(attempt)
            await self._respond(attempt)
        finally:
            attempt.release()

    async def _read(self, attempt: Attempt) -> bool:
        """Whether what was found is to be answered at once."""
        attempt.begin()
        plan = tuple(attempt.plan)  # a later request of its session may change the session meanwhile
        async for start in self._slices.each(range(0, len(plan), _READ_TOGETHER)):
            attempt.read_some(plan[start : start + _READ_TOGETHER])
        return attempt.is_enough

    async def _wait(self, attempt: Attempt) -> None:
        """Until there is enough, a partition has gone, or the time is over."""
        moved = asyncio.Event()
        is_over = False

        def note(partition: Partition) -> None:
            nonlocal is_over
            is_over |= partition.is_closed
            moved.set()

        waited = 0.0
        ends = self._loop.time() + attempt.fetch.wait_ms_max / 1000
        partitions: list[Partition] = []
        try:
            async for key, _ in self._slices.each(tuple(attempt.plan)):
                with suppress(BarnabasError):  # the next look finds what is wrong with it
                    partition = attempt.find(key)
                    partition.watchers[note] = None
                    partitions.append(partition)
                    is_over |= partition.is_closed
            while not await self._read(attempt) and not is_over:
                since = self._handler.now()
                try:
                    async with asyncio.timeout_at(ends):
                        await moved.wait()
                except TimeoutError:
                    return
                finally:
                    waited += self._handler.now() - since
                attempt.release()
                moved.clear()
        finally:
            for partition in partitions:
                partition.watchers.pop(note, None)
            if waited:
                attempt.request.waited(waited)

    async def _respond(self, attempt: Attempt) -> None:
        request = attempt.request
        gathered = self._handler.gathered()
        async for key, reply in self._slices.each(attempt.told()):
            gathered.add(key, reply)
        steps = encode_fetch_response_in_steps(request.version, gathered.response(request, attempt.plan))
        encoded = await self._slices.finish(steps, request.check_wanted)
        attempt.forget()
        self._handler.send(request, encoded)


def decode_wide_fetch(version: int, body: memoryview) -> Steps[FetchRequest]:
    """As `decode_fetch_request`, through kio's classes."""
    message = yield from decode_request_in_steps(ApiKey.FETCH, version, body)
    fetch = FetchRequest(message.max_wait // timedelta(milliseconds=1), message.min_bytes, message.max_bytes)
    fetch.isolation_level = message.isolation_level
    fetch.session_id = getattr(message, "session_id", fetch.session_id)
    fetch.session_epoch = getattr(message, "session_epoch", fetch.session_epoch)
    fetch.replica_id = getattr(getattr(message, "replica_state", message), "replica_id", fetch.replica_id)
    topics = []
    for topic in message.topics:
        partitions = []
        for one in topic.partitions:
            partitions.append(_partition(one))
            yield
        topics.append(FetchTopic(*_name_and_id(topic), partitions))
    fetch.topics = topics
    forgotten = getattr(message, "forgotten_topics_data", ())
    fetch.forgotten_topics = [ForgottenTopic(*_name_and_id(topic), topic.partitions) for topic in forgotten]
    return fetch


def _name_and_id(topic: Any) -> tuple[str, UUID]:
    return getattr(topic, "topic", ""), getattr(topic, "topic_id", None) or ZERO_UUID


def _partition(one: Any) -> FetchPartition:
    return FetchPartition(
        one.partition,
        getattr(one, "current_leader_epoch", NO_EPOCH),
        one.fetch_offset,
        getattr(one, "last_fetched_epoch", NO_EPOCH),
        getattr(one, "log_start_offset", -1),
        one.partition_max_bytes,
    )
