"""How a follower makes its log the leader's: what it asks for, and what it does with the answer. Pure.

A fetch says the last epoch of the follower's log and where it ends. The leader answers with records, or with where its
own history of that epoch ends: then the logs have parted, and the follower cuts its log to what they share, by epochs,
never by its high watermark. It may take several rounds, each of which reaches further back.

An answer counts only for the fetch that is out: in the same leader epoch, and of the same end. What a leader of an
earlier epoch sends late is dropped.
"""

import enum
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from barnabas.base.ids import NO_EPOCH, LeaderEpoch, Offset
from barnabas.storage.log.epochs import EpochEnd, LeaderEpochs
from barnabas.wire.errors import ErrorCode


class Asked(NamedTuple):
    """What is asked of the leader: records from `offset` on, for a log whose last record is of `last_epoch`."""

    leader_epoch: LeaderEpoch
    offset: Offset
    last_epoch: LeaderEpoch


class Answer(NamedTuple):
    """What the leader says of one partition."""

    error: ErrorCode = ErrorCode.NONE
    diverging: EpochEnd | None = None
    has_records: bool = False
    high_watermark: Offset = -1
    log_start_offset: Offset = -1


@dataclass(frozen=True, slots=True)
class Append:
    """The records of the answer follow on the log's end."""

    high_watermark: Offset
    log_start_offset: Offset


@dataclass(frozen=True, slots=True)
class Truncate:
    """The log ends at `offset` before anything else happens to it."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class StartOver:
    """The leader's log starts behind this one's end, or ends before its start: the log begins again, empty.

    The leader is asked where its log starts.
    """


class Wait(enum.Enum):
    """Nothing to do now."""

    FOR_METADATA = "another broker leads it by now, or will: the image says so soon"
    AND_TRY_AGAIN = "the leader cannot answer now"


@dataclass(frozen=True, slots=True)
class Stop:
    """Something is wrong that asking again does not mend."""

    reason: ErrorCode


Effect: TypeAlias = Append | Truncate | StartOver | Wait | Stop

_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.STALE_BROKER_EPOCH,
    }
)
_PASSING = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
    }
)


def next_fetch(leader_epoch: LeaderEpoch, epochs: LeaderEpochs, end_offset: Offset) -> Asked:
    """What a log needs next."""
    latest = epochs.latest_epoch
    return Asked(leader_epoch, end_offset, NO_EPOCH if latest is None else latest)


def decide(asked: Asked, now: Asked, answer: Answer, epochs: LeaderEpochs, log_start_offset: Offset) -> Effect | None:
    """What to do with an answer. `now` is what would be asked now: None when the answer is not for that."""
    if asked != now:
        return None
    if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        return StartOver()
    if answer.error in _MOVED:
        return Wait.FOR_METADATA
    if answer.error in _PASSING:
        return Wait.AND_TRY_AGAIN
    if answer.error is not ErrorCode.NONE:
        return Stop(answer.error)
    if answer.diverging is not None:
        offset = shared_end(epochs, asked.offset, answer.diverging)
        return StartOver() if offset < log_start_offset else Truncate(offset)
    return Append(answer.high_watermark, answer.log_start_offset)


def shared_end(epochs: LeaderEpochs, end_offset: Offset, leaders: EpochEnd) -> Offset:
    """Up to where a log may be the same as the leader's, by the end of the last epoch that both may have."""
    own = epochs.end_offset_for(leaders.epoch, end_offset)
    own_end = own.end_offset if own.epoch != NO_EPOCH else 0
    return min(leaders.end_offset, own_end)


def diverges(asked: Asked, ours: EpochEnd) -> bool:
    """For a leader: whether a follower's log is not the beginning of the leader's.

    `ours` is where the leader's history of the follower's last epoch ends.
    """
    return ours.epoch < asked.last_epoch or ours.end_offset < asked.offset
