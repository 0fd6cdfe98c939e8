"""What a benchmark says of two things that were measured in turns."""

import pytest
from benchmarks.paired import paired_ratio


def test_ratio_of_equal_rounds_is_certain() -> None:
    ratio = paired_ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (ratio.low, ratio.mean, ratio.high) == pytest.approx((2, 2, 2))


def test_twice_as_fast_and_half_as_fast_is_no_difference() -> None:
    ratio = paired_ratio([2.0, 1.0], [1.0, 2.0])
    assert ratio.mean == pytest.approx(1)
    assert ratio.low == pytest.approx(1 / ratio.high)


def test_interval_is_students() -> None:
    """Logarithms -0.1, 0 and 0.1: a standard deviation of 0.1, and a quantile of 2.920 for two degrees of freedom."""
    ratio = paired_ratio([0.904837418, 1.0, 1.105170918], [1.0, 1.0, 1.0])
    assert ratio.high == pytest.approx(2.718281828 ** (2.920 * 0.1 / 3**0.5))


def test_interval_narrows_with_the_rounds() -> None:
    few, many = paired_ratio([1.0, 1.1] * 2, [1.0] * 4), paired_ratio([1.0, 1.1] * 20, [1.0] * 40)
    assert few.mean == pytest.approx(many.mean)
    assert few.low < many.low < many.mean < many.high < few.high
