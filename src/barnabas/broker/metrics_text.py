"""Metrics in Prometheus's text format, version 0.0.4.

```
# HELP barnabas_log_bytes Size of a partition's log.
# TYPE barnabas_log_bytes gauge
barnabas_log_bytes{topic="orders",partition="0"} 1048576
```

Written by hand, because `prometheus_client` takes five times as long and cannot stop in between: a broker with
thousands of partitions writes a few lines at a time (`docs/decisions/0009-metrics.md`).
"""

import re
from collections.abc import Iterator
from itertools import accumulate
from math import isfinite, isnan
from typing import Final

from barnabas.base.metrics import Description, HistogramSample, LabelValues, Metrics

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_SPECIAL: Final = re.compile(r'[\\\n"]')
_BUCKET_LABEL: Final = "le"


def metrics_text(metrics: Metrics) -> bytes:
    """All of it at once."""
    return "".join(text_pieces(metrics)).encode()


def text_pieces(metrics: Metrics) -> Iterator[str]:
    """The text, a sample at a time: each is read when it is asked for. A metric without samples is left out."""
    for description, samples in metrics.families():
        header = _header(description)
        template = description.name + _labels(description.label_names) + " %s\n"
        for sample in samples:
            if isinstance(sample, HistogramSample):
                piece = _histogram(description, sample)
            else:
                values, value = sample
                piece = template % (*_escaped(values), value if type(value) is int else _number(value))
            yield header + piece
            header = ""


def _header(description: Description) -> str:
    text = description.text.translate(_HELP_ESCAPES)
    return f"# HELP {description.name} {text}\n# TYPE {description.name} {description.kind.value}\n"


def _histogram(description: Description, sample: HistogramSample) -> str:
    name, label_names = description.name, description.label_names
    values = _escaped(sample.label_values)
    labels = _labels(label_names) % values
    bucket = f"{name}_bucket{_labels((*label_names, _BUCKET_LABEL))} %d\n"
    bounds = (*sample.bounds, float("inf"))
    buckets = [
        bucket % (*values, _number(bound), count)
        for bound, count in zip(bounds, accumulate(sample.counts), strict=True)
    ]
    return "".join(
        [*buckets, f"{name}_count{labels} {sum(sample.counts)}\n", f"{name}_sum{labels} {_number(sample.sum)}\n"]
    )


def _labels(names: tuple[str, ...]) -> str:
    """With a place for each value."""
    return "{" + ",".join([f'{name}="%s"' for name in names]) + "}" if names else ""


def _escaped(values: LabelValues) -> LabelValues:
    if not _SPECIAL.search("".join(values)):
        return values
    return tuple([value.translate(_LABEL_ESCAPES) for value in values])


def _number(value: float) -> str:
    if isfinite(value):
        return repr(value)
    return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"
