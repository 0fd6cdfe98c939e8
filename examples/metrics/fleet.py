"""A fleet of hosts that send metrics, with incidents that are known beforehand. All of it comes from a seed. Pure.

Each host sends a sample of every metric once a second, in turn, so that samples come at a steady rate. What is special:

| what | how much | what becomes of it |
|---|---|---|
| incidents | six in a minute, each over two whole windows | alerts, which `expected_alerts` foretells |
| a counter that starts at zero again | one host each minute | no alert |
| out of order: sent up to 1.5 s late | 5 % | counts |
| late: sent 12 to 15 s late | 0.2 % | does not count, once its window is closed |
| malformed | 0.1 %, besides the samples | dead letters |

A sample's time is when it was taken, `at`; `due_ms` says when it is sent. Records are in the order of sending; at the
end, those that wait are sent at once.
"""

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Final

TOPIC: Final = "metrics"
TOPIC_PARTITIONS: Final = 2
OUTPUT_TOPICS: Final = ("alerts", "metric-windows", "metrics-dead")
WINDOW_MS: Final = 5_000
WATERMARK_MS: Final = 3_000
"""Both as in pipeline.yaml."""

GAUGES: Final = {"cpu_percent": (20.0, 60.0), "memory_percent": (40.0, 70.0), "disk_percent": (30.0, 75.0)}
"""From where to where the usual values of hosts go; noise of up to `_NOISE` comes over that."""
COUNTERS: Final = {"requests_total": (30, 60), "errors_total": (0, 1)}
"""How much a counter usually grows in a second."""
METRICS: Final = (*GAUGES, *COUNTERS)
_NOISE: Final = 5.0

RATE_MIN: Final = 50
"""Ten hosts; the troubles of a minute and the restart need seven."""
_PERIOD_WINDOWS: Final = 12
_OUT_OF_ORDER: Final = 0.05
_OUT_OF_ORDER_MS: Final = (100, 1_500)
_LATE: Final = 0.002
_LATE_MS: Final = (12_000, 15_000)
_MALFORMED: Final = 0.001
_MALFORMED_VALUES: Final = (
    b'{"host": "web-001", "metric": "cpu_per',
    b'{"host": "web-001", "metric": "cpu_percent", "value": "n/a", "at": "2024-05-01T10:00:00.000Z"}',
    b'{"metric": "cpu_percent", "value": 12.5, "at": "2024-05-01T10:00:00.000Z"}',
    b'{"host": "web-001", "metric": "cpu_percent", "value": 12.5, "at": "yesterday"}',
    b"\xff\xfe\x00",
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What may happen to a metric: a gauge has values between `low` and `high`, a counter grows so much a second."""

    rule: str
    severity: str
    metric: str
    low: float
    high: float


TROUBLES: Final = (
    Trouble("cpu-high", "critical", "cpu_percent", 96, 99),
    Trouble("cpu-high", "warning", "cpu_percent", 82, 90),
    Trouble("memory-high", "warning", "memory_percent", 87, 92),
    Trouble("disk-full", "critical", "disk_percent", 97.5, 99),
    Trouble("errors-rising", "critical", "errors_total", 30, 50),
    Trouble("traffic-stopped", "critical", "requests_total", 0, 0),
)
_TROUBLE_WINDOWS: Final = 2


@dataclass(frozen=True, slots=True, order=True)
class ExpectedAlert:
    rule: str
    host: str
    window_start_ms: int
    severity: str


@dataclass(frozen=True, slots=True)
class GeneratedRecord:
    """`at_ms` is None for a malformed one."""

    due_ms: int
    key: bytes
    value: bytes
    at_ms: int | None


@dataclass(frozen=True, slots=True)
class Fleet:
    """Sends `rate` samples a second, from `start_ms` on; the number of hosts follows from that."""

    seed: int
    rate: int
    start_ms: int

    @property
    def hosts(self) -> int:
        return self.rate // len(METRICS)

    def taken_ms(self, number: int) -> int:
        """When the sample with this number is taken."""
        return self.start_ms + number * 1000 // self.rate

    def host_name(self, index: int) -> str:
        return f"web-{index + 1:03d}"

    def trouble(self, host: int, metric: str, at_ms: int) -> Trouble | None:
        """What a host suffers from at a time: each minute has each trouble once, each at a host of its own."""
        for afflicted, trouble in self._troubles(at_ms // WINDOW_MS):
            if afflicted == host and trouble.metric == metric:
                return trouble
        return None

    def is_restarting(self, host: int, at_ms: int) -> bool:
        """Once a minute, in the first second of a window, one host begins its counters anew."""
        period, place = divmod(at_ms // WINDOW_MS - self._first_window, _PERIOD_WINDOWS)
        return place == 1 and at_ms % WINDOW_MS < 1000 and host == self._afflicted(period, len(TROUBLES))

    def expected_alerts(self, last_at_ms: int) -> set[ExpectedAlert]:
        """The alerts that must come once a sample is read that was taken at `last_at_ms`, and no others."""
        closed = (last_at_ms - WATERMARK_MS) // WINDOW_MS
        return {
            ExpectedAlert(trouble.rule, self.host_name(host), window * WINDOW_MS, trouble.severity)
            for window in range(self._first_window, closed)
            for host, trouble in self._troubles(window)
        }

    def _troubles(self, window: int) -> Iterator[tuple[int, Trouble]]:
        period, place = divmod(window - self._first_window, _PERIOD_WINDOWS)
        for index, trouble in enumerate(TROUBLES):
            begins = 1 + index % 2
            if period >= 0 and begins <= place < begins + _TROUBLE_WINDOWS:
                yield self._afflicted(period, index), trouble

    def _afflicted(self, period: int, index: int) -> int:
        return (self.seed + period * (len(TROUBLES) + 1) + index) % self.hosts

    @property
    def _first_window(self) -> int:
        """The first whole one."""
        return -(-self.start_ms // WINDOW_MS)


def generate(fleet: Fleet, count: int) -> Iterator[GeneratedRecord]:
    """So many samples in the order of sending, and the malformed records between them."""
    random = Random(fleet.seed)
    waiting: list[tuple[int, int, GeneratedRecord]] = []
    for number, sample in enumerate(_samples(fleet, count, random)):
        heapq.heappush(waiting, (sample.due_ms, number, sample))
        now_ms = fleet.taken_ms(number)
        while waiting and waiting[0][0] <= now_ms:
            yield heapq.heappop(waiting)[2]
        if random.random() < _MALFORMED:
            yield GeneratedRecord(now_ms, sample.key, random.choice(_MALFORMED_VALUES), None)
    while waiting:
        yield heapq.heappop(waiting)[2]


def _samples(fleet: Fleet, count: int, random: Random) -> Iterator[GeneratedRecord]:
    """In the order in which they were taken."""
    usual = {
        (host, metric): random.uniform(low + _NOISE, high - _NOISE)
        for host in range(fleet.hosts)
        for metric, (low, high) in GAUGES.items()
    }
    end_ms = fleet.taken_ms(count)
    totals = {(host, metric): random.randrange(10_000) for host in range(fleet.hosts) for metric in COUNTERS}
    for number in range(count):
        at_ms = fleet.taken_ms(number)
        host, metric_index = divmod(number % (fleet.hosts * len(METRICS)), len(METRICS))
        metric = METRICS[metric_index]
        trouble = fleet.trouble(host, metric, at_ms)
        if metric in GAUGES:
            middle = usual[host, metric]
            low, high = (middle - _NOISE, middle + _NOISE) if trouble is None else (trouble.low, trouble.high)
            value: float = round(random.uniform(low, high), 2)
        else:
            least, most = COUNTERS[metric] if trouble is None else (int(trouble.low), int(trouble.high))
            if fleet.is_restarting(host, at_ms):
                totals[host, metric] = 0
            totals[host, metric] += random.randint(least, most)
            value = totals[host, metric]
        yield _record(fleet.host_name(host), metric, value, at_ms, min(at_ms + _delay_ms(random), end_ms))


def _delay_ms(random: Random) -> int:
    chance = random.random()
    if chance < _LATE:
        return random.randint(*_LATE_MS)
    return random.randint(*_OUT_OF_ORDER_MS) if chance < _LATE + _OUT_OF_ORDER else 0


def _record(host: str, metric: str, value: float, at_ms: int, due_ms: int) -> GeneratedRecord:
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    sample = {"host": host, "metric": metric, "value": value, "at": at}
    return GeneratedRecord(due_ms, host.encode(), json.dumps(sample).encode(), at_ms)
