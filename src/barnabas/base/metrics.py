"""What a broker measures about itself: counters, histograms and gauges, and the names under which they are shown.

A `Metrics` is handed to whoever measures; there is no global one, because many brokers live in one process. Counting is
on the path of every request, so a counter is one integer (`counter.value += n`) and an observation one binary search:
both are resolved by their labels once, when the broker is put together, and never per request.

    counter, histogram    changed where something happens, read by `snapshot`
    gauge, counter_of     a function that `snapshot` calls, for numbers that somebody keeps anyway

Invariants:
- A metric belongs to the thread of its broker's event loop, `snapshot` too: an increment is not atomic. What a worker
  thread counts is added when its result comes back to the loop.
- Counters and histograms never go down. A name is registered once, and its label names never change.
- Label values come from bounded sets (APIs, topics): every combination stays for the broker's life, or for as long as a
  reading function returns it. What a client can choose freely is never a label value.

Nothing is kept over a restart. Turning a snapshot into text is not done here (`barnabas.broker.http` does it).
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from barnabas.base.ids import TopicPartition

LabelValues: TypeAlias = tuple[str, ...]

REQUEST_SECONDS_BOUNDS: Final = (
    *(0.000_05, 0.000_1, 0.000_25, 0.000_5),
    *(0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
"""From the quickest answer to the longest wait that a client's default timeout (30 s) allows."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_BUCKET_LABEL: Final = "le"


class Counter:
    """A number that only grows. Whoever counts adds to `value`: a method call would cost as much again."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """How often a value fell between fixed bounds. `counts[i]` is for values up to and including `bounds[i]`, the last
    one for all beyond."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        assert bounds, "a histogram needs bounds"
        assert all(low < high for low, high in pairwise(bounds)), "bounds must grow"
        self.bounds = tuple(bounds)
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
        return self._metrics.items()


@dataclass(frozen=True, slots=True)
class Description:
    """What is said of a metric. A counter's name is shown with `_total` behind it."""

    name: str
    text: str
    label_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (self.name, *self.label_names):
            assert _NAME.fullmatch(name), f"{name!r} is no name of a metric or label"
        assert _BUCKET_LABEL not in self.label_names, "the label of a histogram's buckets"
        assert not self.name.endswith("_total"), "the ending is added when it is shown"


class Sample(NamedTuple):
    """A named tuple, because a snapshot makes thousands on the event loop, and a frozen dataclass takes longer."""

    label_values: LabelValues
    value: float


@dataclass(frozen=True, slots=True)
class HistogramSample:
    """`counts` as in `Histogram`: not cumulative."""

    label_values: LabelValues
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


@dataclass(frozen=True, slots=True)
class CounterFamily:
    description: Description
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class GaugeFamily:
    description: Description
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    description: Description
    samples: tuple[HistogramSample, ...]


MetricFamily: TypeAlias = CounterFamily | GaugeFamily | HistogramFamily


class Metrics:
    """All metrics of one broker, in the order in which they were registered."""

    def __init__(self) -> None:
        self._families: dict[str, Callable[[], MetricFamily]] = {}

    def counter(self, name: str, text: str) -> Counter:
        return self.counters(name, text, ()).of()

    def counters(self, name: str, text: str, label_names: tuple[str, ...]) -> Labelled[Counter]:
        description = Description(name, text, label_names)
        counters = Labelled(label_names, Counter)
        self._register(description, lambda: _counter_family(description, counters))
        return counters

    def histogram(self, name: str, text: str, bounds: Sequence[float]) -> Histogram:
        return self.histograms(name, text, (), bounds).of()

    def histograms(
        self, name: str, text: str, label_names: tuple[str, ...], bounds: Sequence[float]
    ) -> Labelled[Histogram]:
        description = Description(name, text, label_names)
        histograms = Labelled(label_names, lambda: Histogram(bounds))
        self._register(description, lambda: _histogram_family(description, histograms))
        return histograms

    def counter_of(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A count that somebody else keeps; `read` is called by each snapshot and must never go down."""
        description = Description(name, text)
        self._register(description, lambda: CounterFamily(description, (Sample((), read()),)))

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A number that `read` tells at each snapshot."""
        description = Description(name, text)
        self._register(description, lambda: GaugeFamily(description, (Sample((), read()),)))

    def gauges(self, name: str, text: str, label_names: tuple[str, ...], read: Callable[[], Iterable[Sample]]) -> None:
        """Numbers that `read` tells at each snapshot. It runs on the event loop: it may look, not compute."""
        description = Description(name, text, label_names)
        self._register(description, lambda: GaugeFamily(description, tuple(read())))

    def snapshot(self) -> tuple[MetricFamily, ...]:
        """Every number as it is now. Nothing in it changes any more, so another thread may go on with it."""
        return tuple(read() for read in self._families.values())

    def _register(self, description: Description, read: Callable[[], MetricFamily]) -> None:
        assert description.name not in self._families, f"{description.name} is registered twice"
        self._families[description.name] = read


def _counter_family(description: Description, counters: Labelled[Counter]) -> CounterFamily:
    return CounterFamily(description, tuple(Sample(labels, counter.value) for labels, counter in counters.items()))


def _histogram_family(description: Description, histograms: Labelled[Histogram]) -> HistogramFamily:
    return HistogramFamily(
        description,
        tuple(
            HistogramSample(labels, histogram.bounds, tuple(histogram.counts), histogram.sum)
            for labels, histogram in histograms.items()
        ),
    )


class NetworkReadings(Protocol):
    """The numbers that the network keeps (`barnabas.net.counters`)."""

    bytes_in: int
    bytes_out: int
    requests_in: int
    connections_open: int
    connections_accepted: int
    connections_refused: int
    connections_closed_idle: int
    ranges_loaded: int


def measure_network(metrics: Metrics, network: NetworkReadings) -> None:
    """Bytes, requests and connections."""
    metrics.counter_of("barnabas_network_received_bytes", "Bytes received from clients.", lambda: network.bytes_in)
    metrics.counter_of("barnabas_network_sent_bytes", "Bytes sent to clients.", lambda: network.bytes_out)
    metrics.counter_of("barnabas_requests_received", "Requests received.", lambda: network.requests_in)
    metrics.gauge("barnabas_connections", "Connections that are open.", lambda: network.connections_open)
    metrics.counter_of("barnabas_connections_accepted", "Connections accepted.", lambda: network.connections_accepted)
    metrics.counter_of("barnabas_connections_refused", "Connections over a limit.", lambda: network.connections_refused)
    metrics.counter_of(
        "barnabas_connections_closed_idle", "Connections closed for idleness.", lambda: network.connections_closed_idle
    )
    metrics.counter_of(
        "barnabas_fetch_cold_reads", "File ranges read from disk before sending.", lambda: network.ranges_loaded
    )


def measure_requests(metrics: Metrics) -> Labelled[Histogram]:
    """Time by API, from the whole request received to its answer handed over, waits included. Its count is the number
    of requests answered."""
    return metrics.histograms(
        "barnabas_request_seconds",
        "Time from a request to its answer, waiting included.",
        ("api",),
        REQUEST_SECONDS_BOUNDS,
    )


class DirectoryReading(NamedTuple):
    """A log directory that is online."""

    path: str
    free_bytes: int | None
    """None as long as nobody has looked."""
    is_full: bool


def measure_logs(
    metrics: Metrics,
    log_bytes: Callable[[], Iterable[tuple[TopicPartition, int]]],
    offline_directory_count: Callable[[], int],
    directories: Callable[[], Iterable[DirectoryReading]],
) -> None:
    """Sizes of the logs, how many directories have failed, and how much space is left in the others."""
    metrics.gauges(
        "barnabas_log_bytes",
        "Size of a partition's log.",
        ("topic", "partition"),
        lambda: (Sample((partition.topic, str(partition.partition)), size) for partition, size in log_bytes()),
    )
    metrics.gauge("barnabas_log_directories_offline", "Log directories that failed.", offline_directory_count)
    metrics.gauges(
        "barnabas_log_directory_free_bytes",
        "Space that is left on the disk of a log directory.",
        ("directory",),
        lambda: (Sample((one.path,), one.free_bytes) for one in directories() if one.free_bytes is not None),
    )
    metrics.gauges(
        "barnabas_log_directory_full",
        "Whether writes to a log directory are refused for lack of space.",
        ("directory",),
        lambda: (Sample((one.path,), int(one.is_full)) for one in directories()),
    )
