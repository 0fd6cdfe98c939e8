"""What a follower does with what the leader answers, and where two logs part."""

import pytest

from barnabas.base.ids import NO_EPOCH
from barnabas.replication.follower import (
    Answer,
    Append,
    Asked,
    Effect,
    StartOver,
    Stop,
    Truncate,
    Wait,
    decide,
    diverges,
    next_fetch,
    shared_end,
)
from barnabas.storage.log.epochs import EpochEnd, EpochEntry, LeaderEpochs
from barnabas.wire.errors import ErrorCode

HISTORY = LeaderEpochs([EpochEntry(1, 0), EpochEntry(3, 10), EpochEntry(4, 20)])
END = 30
ASKED = Asked(5, END, 4)


def test_fetch_says_the_end_and_its_epoch() -> None:
    assert next_fetch(5, HISTORY, END) == ASKED
    assert next_fetch(5, LeaderEpochs(), 0) == Asked(5, 0, NO_EPOCH)


@pytest.mark.parametrize(
    ("answer", "effect"),
    [
        (Answer(has_records=True, high_watermark=25, log_start_offset=2), Append(25, 2)),
        (Answer(high_watermark=30, log_start_offset=2), Append(30, 2)),
        (Answer(diverging=EpochEnd(4, 25)), Truncate(25)),
        (Answer(diverging=EpochEnd(3, 15)), Truncate(15)),
        (Answer(diverging=EpochEnd(3, 28)), Truncate(20)),
        (Answer(diverging=EpochEnd(2, 12)), Truncate(10)),
        (Answer(diverging=EpochEnd(1, 4)), StartOver()),
        (Answer(ErrorCode.OFFSET_OUT_OF_RANGE), StartOver()),
        (Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), Wait.FOR_METADATA),
        (Answer(ErrorCode.FENCED_LEADER_EPOCH), Wait.FOR_METADATA),
        (Answer(ErrorCode.KAFKA_STORAGE_ERROR), Wait.AND_TRY_AGAIN),
        (Answer(ErrorCode.CORRUPT_MESSAGE), Wait.AND_TRY_AGAIN),
        (Answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), Stop(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)),
    ],
)
def test_answer_decides(answer: Answer, effect: Effect) -> None:
    assert decide(ASKED, ASKED, answer, HISTORY, 5) == effect


@pytest.mark.parametrize(
    "now", [ASKED._replace(leader_epoch=6), ASKED._replace(offset=31), ASKED._replace(last_epoch=5)]
)
def test_answer_to_an_earlier_fetch_is_dropped(now: Asked) -> None:
    assert decide(ASKED, now, Answer(has_records=True), HISTORY, 0) is None


@pytest.mark.parametrize(
    ("leaders", "expected"),
    [
        (EpochEnd(4, 40), 30),
        (EpochEnd(4, 22), 22),
        (EpochEnd(3, 20), 20),
        (EpochEnd(2, 15), 10),
        (EpochEnd(1, 5), 5),
        (EpochEnd(0, 5), 0),
    ],
)
def test_logs_share_what_both_have_of_the_last_common_epoch(leaders: EpochEnd, expected: int) -> None:
    assert shared_end(HISTORY, END, leaders) == expected


@pytest.mark.parametrize(
    ("ours", "expected"),
    [(EpochEnd(4, 30), False), (EpochEnd(4, 35), False), (EpochEnd(4, 29), True), (EpochEnd(3, 99), True)],
)
def test_log_diverges_when_it_is_not_the_beginning_of_the_leaders(ours: EpochEnd, expected: bool) -> None:
    assert diverges(ASKED, ours) is expected
