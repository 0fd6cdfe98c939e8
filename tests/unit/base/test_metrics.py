import pytest

from barnabas.base import metric_table
from barnabas.base.metrics import Description, Histogram, HistogramSample, Kind, Metrics, Sample

COUNTER, GAUGE, HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
APPENDED = Description(COUNTER, "appended_bytes_total", "Bytes appended.")
ERRORS = Description(COUNTER, "errors_total", "Errors.", ("api", "code"))
SECONDS = Description(HISTOGRAM, "seconds", "Time.", (), (1.0,))
QUEUED = Description(GAUGE, "queued", "Waiting.")
SIZES = Description(GAUGE, "sizes", "Sizes.", ("name",))


@pytest.fixture
def metrics():
    return Metrics()


def samples_of(metrics):
    """Of the only metric."""
    ((_, samples),) = metrics.families()
    return list(samples)


def test_counter_is_shown_as_it_is_when_it_is_read(metrics):
    counter = metrics.counter(APPENDED)
    assert samples_of(metrics) == [Sample((), 0)]
    counter.value += 17
    ((description, samples),) = metrics.families()
    assert (description, list(samples)) == (APPENDED, [Sample((), 17)])


def test_counters_of_the_same_labels_are_one(metrics):
    errors = metrics.counters(ERRORS)
    errors.of("Fetch", "1").value += 1
    errors.of("Produce", "1").value += 5
    errors.of("Fetch", "1").value += 1
    assert samples_of(metrics) == [Sample(("Fetch", "1"), 2), Sample(("Produce", "1"), 5)]


def test_counters_without_a_value_for_each_label_are_refused(metrics):
    errors = metrics.counters(ERRORS)
    with pytest.raises(AssertionError, match="api"):
        errors.of("Fetch")


def test_what_never_happened_is_not_shown(metrics):
    errors = metrics.counters(ERRORS)
    seconds = metrics.histogram(SECONDS)
    errors.of("Fetch", "1")
    assert [list(samples) for _, samples in metrics.families()] == [[], []]
    errors.of("Fetch", "1").value += 1
    seconds.observe(0.5)
    assert [len(list(samples)) for _, samples in metrics.families()] == [1, 1]


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
        Description(HISTOGRAM, "seconds", "Time.", (), bounds)


def test_histogram_that_was_read_does_not_change_any_more(metrics):
    histogram = metrics.histogram(SECONDS)
    histogram.observe(0.25)
    samples = samples_of(metrics)
    histogram.observe(3.0)
    assert samples == [HistogramSample((), bounds=(1.0,), counts=(1, 0), sum=0.25)]


def test_reading_is_read_each_time(metrics):
    queue: list[str] = []
    metrics.reading(QUEUED, lambda: len(queue))
    assert samples_of(metrics) == [Sample((), 0)]
    queue.append("first")
    assert samples_of(metrics) == [Sample((), 1)]


def test_readings_whose_labels_go_away_are_shown_no_longer(metrics):
    sizes = {"a": 1, "b": 2}
    metrics.readings(SIZES, lambda: (Sample((name,), size) for name, size in sizes.items()))
    assert samples_of(metrics) == [Sample(("a",), 1), Sample(("b",), 2)]
    del sizes["a"]
    assert samples_of(metrics) == [Sample(("b",), 2)]


def test_labels_that_come_while_the_others_are_read_wait_for_the_next_time(metrics):
    errors = metrics.counters(ERRORS)
    errors.of("Fetch", "1").value += 1
    ((_, samples),) = metrics.families()
    errors.of("Produce", "1").value += 1
    assert list(samples) == [Sample(("Fetch", "1"), 1)]
    assert len(samples_of(metrics)) == 2


def test_name_registered_twice_is_refused(metrics):
    metrics.counter(APPENDED)
    with pytest.raises(AssertionError, match="appended_bytes_total is registered twice"):
        metrics.counter(Description(COUNTER, "appended_bytes_total", "Other things.", ()))


@pytest.mark.parametrize(
    ("kind", "name", "label_names"),
    [
        (GAUGE, "with-dash", ()),
        (GAUGE, "", ()),
        (GAUGE, "bytes_total", ()),
        (COUNTER, "bytes", ()),
        (GAUGE, "sizes", ("le",)),
        (GAUGE, "sizes", ("A",)),
    ],
)
def test_name_that_prometheus_would_not_take_is_refused(kind, name, label_names):
    with pytest.raises(AssertionError):
        Description(kind, name, "Things.", label_names)


def test_metrics_of_two_brokers_are_apart():
    first, second = Metrics(), Metrics()
    first.counter(APPENDED).value += 1
    assert second.counter(APPENDED).value == 0


def test_table_names_every_metric_once():
    described = [value for value in vars(metric_table).values() if isinstance(value, Description)]
    assert sorted(one.name for one in described) == sorted(one.name for one in metric_table.METRICS)
    assert len({one.name for one in described}) == len(described)
