"""What the benchmark of failovers takes for a gap."""

import pytest
from benchmarks.failover import longest_gap


def test_gap_is_the_longest_time_between_two_acknowledgements() -> None:
    assert longest_gap([1.0, 1.1, 1.7, 1.8], since=0) == pytest.approx(0.6)


def test_gap_that_began_before_the_kill_counts_whole() -> None:
    assert longest_gap([1.0, 2.0, 2.1], since=1.5) == pytest.approx(1.0)


def test_gap_that_was_over_before_the_kill_is_none_of_its() -> None:
    assert longest_gap([1.0, 3.0, 3.1, 3.3], since=3.05) == pytest.approx(0.2)
