from dataclasses import fields

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.base.metrics import (
    REQUEST_SECONDS_BOUNDS,
    CounterFamily,
    Description,
    DirectoryReading,
    GaugeFamily,
    Histogram,
    HistogramFamily,
    HistogramSample,
    Metrics,
    Sample,
    measure_logs,
    measure_network,
    measure_requests,
)
from barnabas.net.counters import NetworkCounters


@pytest.fixture
def metrics():
    return Metrics()


def test_counter_is_shown_as_it_was_at_the_snapshot(metrics):
    counter = metrics.counter("appended_bytes", "Bytes appended.")
    counter.value += 17
    before = metrics.snapshot()
    counter.value += 1
    assert before == (CounterFamily(Description("appended_bytes", "Bytes appended."), (Sample((), 17),)),)
    assert metrics.snapshot()[0].samples == (Sample((), 18),)


def test_counters_of_the_same_labels_are_one(metrics):
    errors = metrics.counters("errors", "Errors.", ("api", "code"))
    errors.of("Fetch", "1").value += 1
    errors.of("Produce", "1").value += 5
    errors.of("Fetch", "1").value += 1
    assert metrics.snapshot()[0].samples == (Sample(("Fetch", "1"), 2), Sample(("Produce", "1"), 5))


def test_counters_without_a_value_for_each_label_are_refused(metrics):
    errors = metrics.counters("errors", "Errors.", ("api", "code"))
    with pytest.raises(AssertionError, match="api"):
        errors.of("Fetch")


def test_histogram_counts_a_value_on_a_bound_below_it():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5, 1000.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 2]
    assert histogram.count == 6
    assert histogram.sum == 1007.5


@pytest.mark.parametrize("bounds", [(), (1.0, 1.0), (2.0, 1.0)])
def test_histogram_without_growing_bounds_is_refused(bounds):
    with pytest.raises(AssertionError):
        Histogram(bounds)


def test_histogram_in_a_snapshot_does_not_change_any_more(metrics):
    histogram = metrics.histogram("seconds", "Time.", (1.0,))
    histogram.observe(0.25)
    (family,) = metrics.snapshot()
    histogram.observe(3.0)
    assert family == HistogramFamily(
        Description("seconds", "Time."), (HistogramSample((), bounds=(1.0,), counts=(1, 0), sum=0.25),)
    )


def test_gauge_is_read_at_each_snapshot(metrics):
    queue: list[str] = []
    metrics.gauge("queued", "Waiting.", lambda: len(queue))
    assert metrics.snapshot()[0].samples == (Sample((), 0),)
    queue.append("first")
    assert metrics.snapshot() == (GaugeFamily(Description("queued", "Waiting."), (Sample((), 1),)),)


def test_gauges_whose_labels_go_away_are_shown_no_longer(metrics):
    sizes = {"a": 1, "b": 2}
    metrics.gauges("sizes", "Sizes.", ("name",), lambda: (Sample((name,), size) for name, size in sizes.items()))
    assert metrics.snapshot()[0].samples == (Sample(("a",), 1), Sample(("b",), 2))
    del sizes["a"]
    assert metrics.snapshot()[0].samples == (Sample(("b",), 2),)


def test_name_registered_twice_is_refused(metrics):
    metrics.counter("things", "Things.")
    with pytest.raises(AssertionError, match="things is registered twice"):
        metrics.gauge("things", "Things.", lambda: 0)


@pytest.mark.parametrize(
    ("name", "label_names"), [("with-dash", ()), ("", ()), ("bytes_total", ()), ("sizes", ("le",)), ("sizes", ("A",))]
)
def test_name_that_prometheus_would_not_take_is_refused(metrics, name, label_names):
    with pytest.raises(AssertionError):
        metrics.counters(name, "Things.", label_names)


def test_metrics_of_two_brokers_are_apart():
    first, second = Metrics(), Metrics()
    first.counter("things", "Things.").value += 1
    assert second.counter("things", "Things.").value == 0


def test_network_shows_every_number_that_is_kept(metrics):
    counters = NetworkCounters()
    measure_network(metrics, counters)
    for value, field in enumerate(fields(counters), start=1):
        setattr(counters, field.name, value)
    shown = {family.description.name: family.samples[0].value for family in metrics.snapshot()}
    assert sorted(shown.values()) == list(range(1, len(fields(counters)) + 1))
    assert shown["barnabas_network_received_bytes"] == counters.bytes_in
    assert shown["barnabas_network_sent_bytes"] == counters.bytes_out
    assert shown["barnabas_connections"] == counters.connections_open


def test_requests_are_timed_by_api(metrics):
    seconds = measure_requests(metrics)
    seconds.of("Produce").observe(0.000_2)
    seconds.of("Fetch").observe(0.5)
    (family,) = metrics.snapshot()
    assert [(sample.label_values, sample.sum) for sample in family.samples] == [
        (("Produce",), 0.000_2),
        (("Fetch",), 0.5),
    ]
    assert family.samples[0].bounds == REQUEST_SECONDS_BOUNDS


def test_logs_are_shown_by_partition_and_space_by_directory(metrics):
    sizes = {TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 2**40}
    directories = [DirectoryReading("/a", 7, True), DirectoryReading("/b", None, False)]
    measure_logs(metrics, lambda: sizes.items(), lambda: 1, lambda: directories)
    log_bytes, offline, free, full = metrics.snapshot()
    assert log_bytes.samples == (Sample(("orders", "0"), 100), Sample(("orders", "1"), 2**40))
    assert offline.samples == (Sample((), 1),)
    assert free.samples == (Sample(("/a",), 7),)
    assert full.samples == (Sample(("/a",), 1), Sample(("/b",), 0))
