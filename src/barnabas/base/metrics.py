"""What a broker measures about itself: counters, histograms and gauges.

A `Metrics` is handed to each part that measures; there is no global one, because many brokers live in one process.
Counting is on the path of every request, so a counter is one integer (`counter.value += n`) and an observation one
binary search: both are resolved by their labels once, when the broker is put together, and never per request.

    counter, histogram    changed where something happens, read when the metrics are asked for
    reading               a function that is called then, for numbers that somebody keeps anyway

`barnabas.base.metric_table` has the metrics of a broker; what is not in that table is not on `docs/metrics.md`.

Invariants:
- A metric belongs to the thread of its broker's event loop, and so does reading it: an increment is not atomic. What a
  worker thread counts is added when its result comes back to the loop.
- Counters and histograms never go down. A name is registered once, and its label names never change.
- What never happened is not shown: a labelled counter or a histogram appears with its first event. A counter without
  labels is shown from the start, because one line of zero tells that it exists and lets `rate` see the first event.
- Label values come from bounded sets (APIs, topics, a limited number of groups): every combination stays for the
  broker's life, or for as long as a reading returns it. A client id, which every connection chooses, is never one.

Nothing is kept over a restart. `barnabas.broker.metrics_text` turns it into text.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

LabelValues: TypeAlias = tuple[str, ...]

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_BUCKET_LABEL: Final = "le"
_COUNTER_ENDING: Final = "_total"


class Kind(Enum):
    """As Prometheus calls them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Description:
    """What there is to know of a metric before anything is measured."""

    kind: Kind
    name: str
    text: str
    label_names: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Of a histogram's buckets."""

    def __post_init__(self) -> None:
        for name in (self.name, *self.label_names):
            assert _NAME.fullmatch(name), f"{name!r} is no name of a metric or label"
        assert _BUCKET_LABEL not in self.label_names, "the label of a histogram's buckets"
        is_counter = self.kind is Kind.COUNTER
        assert self.name.endswith(_COUNTER_ENDING) == is_counter, f"{self.name}: {_COUNTER_ENDING} is for counters"
        assert bool(self.bounds) == (self.kind is Kind.HISTOGRAM), "a histogram needs bounds, others have none"
        assert all(low < high for low, high in pairwise(self.bounds)), "bounds must grow"


class Counter:
    """A number that only grows. Callers add to `value` themselves: a method call would cost as much again."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """How often a value fell between fixed bounds. `counts[i]` is for values up to and including `bounds[i]`, the last
    one for all beyond."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)


_Metric = TypeVar("_Metric", Counter, Histogram)


class Labelled(Generic[_Metric]):
    """The metrics of one name, one for each combination of label values."""

    __slots__ = ("_label_names", "_make", "_metrics")

    def __init__(self, label_names: LabelValues, make: Callable[[], _Metric]) -> None:
        self._label_names = label_names
        self._make: Callable[[], _Metric] = make
        self._metrics: dict[LabelValues, _Metric] = {}

    def of(self, *values: str) -> _Metric:
        """The one with these label values, in the order of the names; made when it is first asked for."""
        assert len(values) == len(self._label_names), f"one value for each of {self._label_names}"
        metric = self._metrics.get(values)
        if metric is None:
            metric = self._metrics[values] = self._make()
        return metric

    def items(self) -> Iterable[tuple[LabelValues, _Metric]]:
        """As they are now; one that is made meanwhile is not among them."""
        return tuple(self._metrics.items())


class Sample(NamedTuple):
    """A named tuple, because thousands are made on the event loop, and a frozen dataclass takes longer."""

    label_values: LabelValues
    value: float


class HistogramSample(NamedTuple):
    """`counts` as in `Histogram`: not cumulative."""

    label_values: LabelValues
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Family(NamedTuple):
    """All samples of one metric. Each is read when it is asked for, so that thousands can be read a few at a time."""

    description: Description
    samples: Iterator[Sample | HistogramSample]


class Metrics:
    """All metrics of one broker, in the order in which they were registered."""

    def __init__(self) -> None:
        self._readers: dict[Description, Callable[[], Iterable[Sample | HistogramSample]]] = {}
        self._names: set[str] = set()

    def counter(self, description: Description) -> Counter:
        assert description.kind is Kind.COUNTER
        assert not description.label_names
        counter = Counter()
        self._register(description, lambda: (Sample((), counter.value),))
        return counter

    def counters(self, description: Description) -> Labelled[Counter]:
        assert description.kind is Kind.COUNTER
        assert description.label_names
        counters = Labelled(description.label_names, Counter)
        self._register(
            description,
            lambda: (Sample(labels, counter.value) for labels, counter in counters.items() if counter.value),
        )
        return counters

    def histogram(self, description: Description) -> Histogram:
        return self.histograms(description).of()

    def histograms(self, description: Description) -> Labelled[Histogram]:
        assert description.kind is Kind.HISTOGRAM
        histograms = Labelled(description.label_names, lambda: Histogram(description.bounds))
        self._register(
            description,
            lambda: (
                HistogramSample(labels, histogram.bounds, tuple(histogram.counts), histogram.sum)
                for labels, histogram in histograms.items()
                if any(histogram.counts)
            ),
        )
        return histograms

    def reading(self, description: Description, read: Callable[[], float]) -> None:
        """A number that somebody keeps anyway. That of a counter must never go down."""
        assert not description.label_names
        self._register(description, lambda: (Sample((), read()),))

    def readings(self, description: Description, read: Callable[[], Iterable[Sample]]) -> None:
        """Numbers that somebody keeps anyway.

        `read` runs on the event loop: it may look, not compute. Where it returns many samples it is a generator, which
        must not fail when what it looks at has changed between two of them.
        """
        assert description.kind is not Kind.HISTOGRAM
        assert description.label_names
        self._register(description, read)

    def families(self) -> Iterator[Family]:
        """Every metric, each read as the caller comes to it. Event loop only."""
        for description, read in tuple(self._readers.items()):
            yield Family(description, iter(read()))

    def _register(self, description: Description, read: Callable[[], Iterable[Sample | HistogramSample]]) -> None:
        assert description.name not in self._names, f"{description.name} is registered twice"
        self._names.add(description.name)
        self._readers[description] = read
