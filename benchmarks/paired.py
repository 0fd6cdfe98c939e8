"""Ratios of two things that were measured in pairs, one of each in every round: their mean, and how sure it is.

What disturbs the machine disturbs both of a pair, so that their ratio moves less than either. The interval is
Student's, of the ratios' logarithms: twice as fast in one round and half as fast in the next is a mean of 1.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CONFIDENCE: Final = 0.9

_STUDENT: Final = (
    6.314,
    2.920,
    2.353,
    2.132,
    2.015,
    1.943,
    1.895,
    1.860,
    1.833,
    1.812,
    1.796,
    1.782,
    1.771,
    1.761,
    1.753,
)
"""The quantile of 0.95, for 1, 2, … degrees of freedom."""
_NORMAL: Final = 1.645


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """The geometric mean, with an interval that holds the true one in nine of ten cases."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> PairedRatio:
    """Of at least two rounds; the first with the first, and so on."""
    logarithms = [math.log(one / other) for one, other in zip(numerators, denominators, strict=True)]
    mean = statistics.fmean(logarithms)
    freedom = len(logarithms) - 1
    quantile = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL
    margin = quantile * statistics.stdev(logarithms) / math.sqrt(len(logarithms))
    return PairedRatio(math.exp(mean), math.exp(mean - margin), math.exp(mean + margin))
