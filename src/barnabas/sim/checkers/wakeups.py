"""A reader that waits at the end of a partition is shown new records at once, not when its wait is over.

A reader waits for a record if it stood at the record's offset before it was acknowledged (by all replicas, if there are
several), and reads all the time. Such a record is shown to it within a quarter of a second. Around faults and starts
nothing is promised; a start may take long on a slow disk, and is over when somebody's record was acknowledged.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from math import inf
from typing import Final

from barnabas.base.ids import Offset, TopicPartition
from barnabas.sim.checkers.guarantees import ALL_ACKS, replicated_partitions
from barnabas.sim.histories.events import Acked, Happened, History, OperationEnded, Positioned, Sent, Shown

_READER: Final = "reader-1"
"""It asks for a single byte: others may wait for more."""
_PROMPT_SECONDS: Final = 0.25
"""Half of what a fetch waits for at most; usually it takes some milliseconds."""
_BEGIN_SECONDS: Final = 0.5
"""After the beginning of an operation its reader asks for the topics first."""
_FAULT_SECONDS: Final = 20.0
"""How long a fault may be felt."""
_START_SECONDS: Final = 2.0
"""How long it may take after a start until every client has come back."""


def check_wakeups(history: History) -> Iterator[str]:
    acked: dict[tuple[TopicPartition, Offset], float] = {}
    replicated = replicated_partitions(history)
    sent = {event.number: event for event in history.of(Sent)}
    for ack in history.of(Acked):
        if ack.partition not in replicated or sent[ack.number].acks == ALL_ACKS:
            acked.setdefault((ack.partition, ack.offset), ack.at)
    faults = [event.at for event in history.of(Happened) if event.client != "director"]
    starts = _starts(history, sorted(acked.values()))
    reads = _reads(history)
    positions: dict[tuple[str, TopicPartition], tuple[Offset, float]] = {}
    for event in history.events:
        if isinstance(event, Positioned):
            positions[event.client, event.partition] = (event.offset, event.at)
        elif isinstance(event, Shown):
            offset, since = positions.get((event.client, event.partition), (-1, 0.0))
            positions[event.client, event.partition] = (event.next_offset, event.at)
            at = acked.get((event.partition, event.first_offset)) if event.client == _READER else None
            if at is None or offset != event.first_offset or since > at or event.at - at <= _PROMPT_SECONDS:
                continue
            if not _is_reading(reads.get(event.client, []), at, event.at):
                continue
            if any(began <= at <= over for began, over in starts):
                continue
            if bisect_left(faults, at - _FAULT_SECONDS) == bisect_right(faults, event.at):
                yield (
                    f"{event.client} waited for offset {offset} of {event.partition}, which was acknowledged at "
                    f"{at:.3f} s, and was shown it at {event.at:.3f} s"
                )


def _starts(history: History, acks: list[float]) -> list[tuple[float, float]]:
    """From when to when each start of a broker was felt."""
    spans = []
    for event in history.of(Happened):
        if event.what == "start":
            following = bisect_right(acks, event.at)
            spans.append((event.at, acks[following] + _START_SECONDS if following < len(acks) else inf))
    return spans


def _reads(history: History) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for event in history.of(OperationEnded):
        if event.operation == "read":
            found.setdefault(event.client, []).append((event.at - event.seconds, event.at))
    return found


def _is_reading(reads: list[tuple[float, float]], since: float, until: float) -> bool:
    return any(start + _BEGIN_SECONDS <= since and until <= end for start, end in reads)
