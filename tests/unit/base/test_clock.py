"""Time that may be set: what is told of a jump, and when it counts."""

import logging
from threading import Thread

import pytest

from barnabas.base.clock import JUMP_MS, SETTLING_MS, ManualClock, SystemClock

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


def test_settled_time_follows_the_passing_of_time_and_small_steps_at_once() -> None:
    clock = ManualClock()
    for _ in range(1000):
        clock.advance(10 * HOUR_MS)
        clock.set_ahead(JUMP_MS)
        assert clock.settled_ms() == clock.now_ms()


@pytest.mark.parametrize("jump_ms", [HOUR_MS, YEAR_MS])
def test_clock_set_ahead_counts_when_it_has_stayed_there(jump_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    start_ms = clock.now_ms()
    clock.set_ahead(jump_ms)
    for passed_ms in range(0, SETTLING_MS, SETTLING_MS // 10):
        assert clock.settled_ms() == start_ms + passed_ms
        clock.advance(SETTLING_MS // 10)
    assert clock.settled_ms() == clock.now_ms() == start_ms + jump_ms + SETTLING_MS
    [line] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"set ahead by {jump_ms // 1000} seconds" in line.getMessage()


def test_clock_set_ahead_and_back_again_never_counted() -> None:
    clock = ManualClock()
    clock.set_ahead(YEAR_MS)
    clock.settled_ms()
    clock.advance(SETTLING_MS - 1)
    clock.set_ahead(-YEAR_MS)
    assert clock.settled_ms() == clock.now_ms()
    clock.set_ahead(YEAR_MS)
    assert clock.settled_ms() == clock.now_ms() - YEAR_MS, "its hour begins anew"


def test_second_jump_ahead_begins_the_wait_anew() -> None:
    clock = ManualClock()
    start_ms = clock.now_ms()
    clock.set_ahead(HOUR_MS)
    clock.settled_ms()
    clock.advance(SETTLING_MS - 1)
    clock.set_ahead(YEAR_MS)
    assert clock.settled_ms() == start_ms + SETTLING_MS - 1
    clock.advance(1)
    assert clock.settled_ms() == start_ms + SETTLING_MS


@pytest.mark.parametrize("jump_ms", [HOUR_MS, YEAR_MS])
def test_clock_set_back_counts_at_once(jump_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    clock.set_ahead(-jump_ms)
    assert clock.settled_ms() == clock.now_ms()
    assert f"set back by {jump_ms // 1000} seconds" in caplog.text


def test_steady_time_does_not_notice_that_the_clock_is_set() -> None:
    clock = ManualClock()
    before = clock.steady_ms(), clock.monotonic()
    clock.set_ahead(-YEAR_MS)
    assert (clock.steady_ms(), clock.monotonic()) == before


def test_system_clock_is_settled_and_may_be_asked_from_any_thread() -> None:
    clock = SystemClock()
    found: list[int] = []
    threads = [Thread(target=lambda: found.extend(clock.settled_ms() for _ in range(100))) for _ in range(4)]
    before_ms = clock.now_ms()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 400
    assert all(before_ms - 1000 <= settled_ms <= clock.now_ms() + 1000 for settled_ms in found)
