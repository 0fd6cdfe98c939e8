"""A broker refuses the sequence of an idempotent producer only if a loss of power made it forget batches.

Our client has one batch of a partition under way at a time and sends it again until it is settled, so that it always
continues where the log ends, or repeats the newest batch. A broker also forgets producers whose last record is older
than a day by its clock.
"""

from collections.abc import Iterator
from typing import Final

from barnabas.sim.checkers.guarantees import clock_ahead_ms, damaged_partitions
from barnabas.sim.checkers.power_loss import PowerLosses
from barnabas.sim.histories.events import History, SendFailed, Sent

_EXPIRY_MS: Final = 86_400_000
_REFUSED: Final = "OUT_OF_ORDER_SEQUENCE_NUMBER"


def check_refusals(history: History) -> Iterator[str]:
    if clock_ahead_ms(history) >= _EXPIRY_MS:
        return
    losses = PowerLosses(history)
    damaged = damaged_partitions(history)
    sent = {event.number: event for event in history.of(Sent)}
    for event in history.of(SendFailed):
        partition = sent[event.number].partition
        if _REFUSED in event.error and partition not in damaged and not losses.happened(partition, 0.0, event.at):
            yield f"at {event.at:.3f} s {event.client} was refused, and no loss of power explains it: {event.error}"
