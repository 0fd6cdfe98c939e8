"""A fetch of very many partitions: decoded, read and encoded in slices, because others wait meanwhile.

The rules are those of `fetch`, except that a waiting fetch reads again when its turn comes, once for all partitions
that have moved by then.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from barnabas.base.errors import BarnabasError
from barnabas.broker.fetch_sessions import FetchPlan, Partitions, SessionPartition
from barnabas.broker.handlers.fetch_attempt import Attempt
from barnabas.broker.request import Request
from barnabas.broker.slices import Slices
from barnabas.net.replies import Reply
from barnabas.replication.partition import Partition
from barnabas.wire.errors import KafkaError
from barnabas.wire.fetch import (
    FetchResult,
    PartitionKey,
    decode_fetch_in_steps,
    encode_fetched_in_steps,
    fetch_frame,
)
from barnabas.wire.leaders import LeaderAndEpoch

if TYPE_CHECKING:
    from barnabas.broker.handlers.fetch import FetchHandler

_READ_TOGETHER: Final = 20


class WideFetches:
    def __init__(self, handler: "FetchHandler", loop: asyncio.AbstractEventLoop, slices: Slices) -> None:
        self._handler = handler
        self._loop = loop
        self._slices = slices

    async def serve(self, request: Request, body: memoryview) -> None:
        """From the bytes to the answer."""
        slices = self._slices
        await slices.begin()
        request.check_wanted()
        fetch = await slices.finish(decode_fetch_in_steps(request.version, body), request.check_wanted)
        del body  # so that the buffer it arrived in does not wait, too
        if fetch.replica_id >= 0:
            work = self._handler.for_replicas(request, fetch)
            if work is not None:
                await work()
            return
        try:
            self._handler.check(fetch)
            wanted: Partitions = OrderedDict()
            async for one in slices.each(fetch.wanted):
                wanted[one.key] = SessionPartition(one)
            plan = self._handler.plan_wide(request, fetch, wanted)
        except KafkaError as error:
            self._handler.refuse(request, fetch, error.code)
        else:
            await self.answer(Attempt(self._handler, request, fetch._replace(wanted=[]), plan), plan)

    async def answer(self, attempt: Attempt, plan: FetchPlan) -> None:
        try:
            if not await self._read(attempt, plan) and attempt.fetch.wait_ms > 0:
                attempt.release()
                await self._wait(attempt, plan)
            await self._respond(attempt, plan)
        finally:
            attempt.release()

    async def _read(self, attempt: Attempt, plan: FetchPlan) -> bool:
        """Whether what was found should be answered at once."""
        attempt.begin()
        sessions = tuple(plan.partitions.values())  # a later request may change the session meanwhile
        async for start in self._slices.each(range(0, len(sessions), _READ_TOGETHER)):
            attempt.read_some(sessions[start : start + _READ_TOGETHER])
        return attempt.is_enough

    async def _wait(self, attempt: Attempt, plan: FetchPlan) -> None:
        """Until there is enough, a partition has gone, or the time is over."""
        moved = asyncio.Event()
        is_over = False

        def note(partition: Partition) -> None:
            nonlocal is_over
            is_over |= partition.is_closed
            moved.set()

        waited = 0.0
        ends = self._loop.time() + attempt.fetch.wait_ms / 1000
        partitions: list[Partition] = []
        try:
            async for key in self._slices.each(tuple(plan.partitions)):
                with suppress(BarnabasError):  # the next look finds what is wrong with it
                    partition = self._handler.replicas.find(key.topic, key.partition)
                    partition.watchers[note] = None
                    partitions.append(partition)
                    is_over |= partition.is_closed
            while not await self._read(attempt, plan) and not is_over:
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

    async def _respond(self, attempt: Attempt, plan: FetchPlan) -> None:
        request = attempt.request
        results: list[tuple[PartitionKey, FetchResult]] = []
        leaders: list[LeaderAndEpoch] = []
        async for found in self._slices.each(attempt.found):
            attempt.tell(found, results, leaders)
        steps = encode_fetched_in_steps(
            request.version,
            results,
            session_id=plan.session_id,
            throttle_ms=request.throttle_ms,
            endpoints=self._handler.endpoints_of(request, leaders),
        )
        encoded = await self._slices.finish(steps, request.check_wanted)
        attempt.found = []  # what was read is on its way: its sender releases it
        request.answer(cast(Reply, fetch_frame(request.version, request.correlation_id, encoded)))
