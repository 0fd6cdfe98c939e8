"""Mistakes of the producing client, which a broker cannot make good."""

from typing import Any

from barnabas.client.producing.accumulator import Accumulator, PendingBatch
from barnabas.client.producing.sender import Sender
from tests.sim.mutants.planting import Mutants, with_fault

mutants = Mutants()
_BROKEN = with_fault("break", "cut", "kill", "pause", "slow_link")


@mutants.plant(
    "retry-behind-others",
    "A batch that must be sent again goes behind those that came after it.",
    Accumulator,
    "put_back",
    checkers=("producer order",),
    telling=_BROKEN,
)
def _(original: Any) -> Any:
    def put_back(self: Accumulator, batch: PendingBatch, not_before: float, problem: Any) -> None:
        original(self, batch, not_before, problem)
        self._queues[batch.partition].batches.rotate(-1)

    return put_back


@mutants.plant(
    "retry-with-new-sequence",
    "A batch that is sent again gets the next sequence numbers, so that no broker can tell that it has it already.",
    Sender,
    "_encode",
    checkers=("duplicates",),
    telling=_BROKEN,
)
def _(original: Any) -> Any:
    async def encode(self: Sender, batch: PendingBatch) -> None:
        batch.encoded = None
        await original(self, batch)

    return encode
