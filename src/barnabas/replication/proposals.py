"""Asks the controller for the ISR that leaders propose: many partitions in one request, one request at a time.

A proposal is due when a follower has caught up (told by the partition, at once), or has lagged for too long (looked for
every half of `replica.lag.time.max.ms`). What becomes of it:

| the answer | then |
|---|---|
| written | the image brings the new state, soon |
| refused for good | it is over: `Partition.refused`; the next one of this partition waits a moment |
| none, another controller's, or the state has moved on | it is sent again until the image settles it |

A follower that the controller has taken out unasked waits a moment, too (`taken_out`).
Without that moment every fetch of a follower that the controller does not want in sync would cause another request.
`leader` has the rules, and why a copy that may be under way is never forgotten.

Owner: the broker's event loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from barnabas.base.clock import Clock
from barnabas.net.errors import NetworkFailed
from barnabas.replication.leader import Proposal
from barnabas.replication.partition import Partition
from barnabas.wire.errors import ErrorCode, KafkaError, MalformedResponse

logger = logging.getLogger(__name__)

_TOGETHER_MAX: Final = 500
_AGAIN_SECONDS: Final = 0.5
_REFUSED_SECONDS: Final = 0.1
_TAKEN_OUT_SECONDS: Final = 1.0
"""The controller has taken a member out, mostly because its broker stops. To propose it at once would be in vain, and
if the controller is what stops, nobody would say so: what is proposed counts until there is an answer."""
_WAIT_SECONDS_MIN: Final = 0.001
"""A timer may fire a little early, by another clock: then there is nothing to do yet."""
_UNSETTLED: Final = frozenset(
    {
        ErrorCode.NONE,  # written, and the image tells what
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class Proposed(NamedTuple):
    partition: Partition
    proposal: Proposal


class _Sent(NamedTuple):
    proposal: Proposal
    again_at: float
    """When another copy is sent."""


Alter: TypeAlias = Callable[[Sequence[Proposed]], Awaitable[Sequence[ErrorCode]]]
"""Asks the controller; raises `NetworkFailed` or `KafkaError` when nobody knows what it has done."""


class Proposals:
    def __init__(
        self,
        clock: Clock,
        led: Callable[[], Sequence[Partition]],
        lag_ms_max: int,
        alter: Alter,
        is_over: Callable[[int, int], bool] = lambda broker_id, epoch: False,
    ) -> None:
        """`led` are the partitions that this broker leads and others follow.

        `is_over` says of a broker and its epoch that this registration has ended, as far as is known here.
        """
        self._clock = clock
        self._led = led
        self._lag_ms_max = lag_ms_max
        self._alter = alter
        self._is_over = is_over
        self._due: dict[Partition, None] = {}
        self._sent: dict[Partition, _Sent] = {}
        """Until the image, or a refusal, settles them."""
        self._refused: dict[Partition, float] = {}
        """Until when nothing more is proposed for them."""
        self._is_due = asyncio.Event()

    def add(self, partition: Partition) -> None:
        """One of its followers has caught up."""
        if partition not in self._refused:
            self._due[partition] = None
            self._is_due.set()

    def taken_out(self, partition: Partition) -> None:
        """The controller has taken members out that this leader did not propose to take out."""
        self._refused[partition] = self._clock.monotonic() + _TAKEN_OUT_SECONDS
        self._is_due.set()

    def brokers_changed(self) -> None:
        """Followers that were not proposed, because they seemed to be gone, may be registered now."""
        for partition in self._led():
            if partition.has_joinable:
                self.add(partition)

    async def run(self) -> None:
        """Until it is cancelled."""
        look_at = 0.0
        while True:
            now = self._clock.monotonic()
            if now >= look_at:
                look_at = now + self._lag_ms_max / 2000
                self._due |= dict.fromkeys(self._led())
            self._end_pauses(now)
            self._is_due.clear()
            together = self._next_copies(now) + self._next_proposals(now)
            if together:
                await self._send(together)
            if not self._due:
                next_at = min([look_at, *(one.again_at for one in self._sent.values()), *self._refused.values()])
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(_WAIT_SECONDS_MIN, next_at - self._clock.monotonic())):
                        await self._is_due.wait()

    def _end_pauses(self, now: float) -> None:
        over = [partition for partition, until in self._refused.items() if until <= now]
        for partition in over:
            del self._refused[partition]
            self._due[partition] = None

    def _next_copies(self, now: float) -> list[Proposed]:
        """Of those whose outcome nobody knows for a while now."""
        self._sent = {one: sent for one, sent in self._sent.items() if one.has_sent(sent.proposal)}
        copies = [Proposed(one, sent.proposal) for one, sent in self._sent.items() if sent.again_at <= now]
        for one, proposal in copies[:_TOGETHER_MAX]:
            one.sends_again(proposal)
            self._sent[one] = _Sent(proposal, now + _AGAIN_SECONDS)
        return copies[:_TOGETHER_MAX]

    def _next_proposals(self, now: float) -> list[Proposed]:
        proposed = []
        now_ms, lag_ms_max, looked_at = self._clock.steady_ms(), self._lag_ms_max, 0
        while self._due and looked_at < _TOGETHER_MAX:
            partition = next(iter(self._due))
            del self._due[partition]
            looked_at += 1
            if partition in self._refused:
                continue
            proposal = partition.due_proposal(now_ms, lag_ms_max, self._is_over)
            if proposal is not None:
                proposed.append(Proposed(partition, proposal))
                self._sent[partition] = _Sent(proposal, now + _AGAIN_SECONDS)
                _say(partition, proposal)
        self._clock.worked(looked_at)
        return proposed

    async def _send(self, proposed: Sequence[Proposed]) -> None:
        try:
            answers = await self._alter(proposed)
        except (NetworkFailed, KafkaError, MalformedResponse) as error:
            logger.info("the controller cannot be asked who is in sync: %s", error)
            return
        for (partition, proposal), code in zip(proposed, answers, strict=True):
            if code not in _UNSETTLED:
                logger.info("%s: the controller refuses another ISR: %s", partition.name, code.name)
                self._sent.pop(partition, None)
                self._refused[partition] = self._clock.monotonic() + _REFUSED_SECONDS
                partition.refused(proposal)


def _say(partition: Partition, proposal: Proposal) -> None:
    before, after = partition.state.isr.keys(), proposal.isr.keys()
    if before - after:
        logger.warning("%s: no longer in sync, because they lag: %s", partition.name, sorted(before - after))
    if after - before:
        logger.info("%s: in sync again: %s", partition.name, sorted(after - before))
