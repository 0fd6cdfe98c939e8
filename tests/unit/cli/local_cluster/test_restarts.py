"""When a process that died is started again."""

from barnabas.cli.local_cluster.restarts import DEATHS_MAX, PAUSES_SECONDS, WINDOW_SECONDS, Deaths


def died_at(*times: float, was_ready: bool = True) -> Deaths:
    deaths = Deaths()
    for time in times:
        deaths = deaths.and_at(time, was_ready=was_ready)
    return deaths


def test_first_restart_is_at_once_and_the_next_ones_wait_longer() -> None:
    pauses = [died_at(*range(count)).pause_seconds for count in range(1, DEATHS_MAX)]

    assert tuple(pauses) == PAUSES_SECONDS
    assert pauses == sorted(pauses)
    assert pauses[0] == 0.0


def test_many_deaths_within_the_window_are_a_crash_loop() -> None:
    assert not died_at(0, 1, 2, 3).is_crash_loop
    assert died_at(0, 1, 2, 3, 4).is_crash_loop
    assert died_at(0, 7, 14, 21, 29.9).is_crash_loop


def test_deaths_of_a_process_that_never_becomes_ready_are_a_crash_loop_however_long_they_take() -> None:
    slow = [number * 2 * WINDOW_SECONDS for number in range(DEATHS_MAX)]

    assert died_at(*slow, was_ready=False).is_crash_loop
    assert not died_at(*slow[:-1], was_ready=False).and_at(slow[-1], was_ready=True).is_crash_loop


def test_deaths_long_ago_are_forgotten() -> None:
    assert not died_at(0, 1, 2, 3, WINDOW_SECONDS).is_crash_loop
    assert died_at(0, 1, 2, 3, 3 + WINDOW_SECONDS).pause_seconds == 0.0
    assert died_at(*(number * WINDOW_SECONDS / 4 for number in range(100))).times == (720.0, 727.5, 735.0, 742.5)
