"""Writes `docs/metrics.md` from the table: `python -m barnabas.cli.metrics_page > docs/metrics.md`.

A test compares the file with what this module writes, another one the table with what a broker serves.
"""

import sys
from collections.abc import Iterable, Iterator

from barnabas.base.metric_table import SECTIONS
from barnabas.base.metrics import Description
from barnabas.cli.settings_page import table_row

_OPENING = """\
# Metrics

This page is written by `python -m barnabas.cli.metrics_page` from the table in the code; do not edit it.

`barnabas up --metrics-listen 127.0.0.1:9404`, or `metrics.listen=127.0.0.1:9404` in the file that `--config` names,
serves two pages over HTTP:

| path | answer |
|---|---|
| `/metrics` | the metrics below in Prometheus's text format |
| `/healthz` | 200 when the broker is ready, else 503; the body says why, as JSON |

The port has neither TLS nor a login, and shows the names of topics and groups: give it an address that only the
operators reach. [`deploy/`](../deploy/README.md) has a dashboard for Grafana and alert rules for Prometheus.

Counters begin at zero when the broker starts. What never happened has no lines: a metric with labels, or a histogram,
appears with its first event, so that a query which must have a number says `or vector(0)`. A scrape is answered a
little at a time between the requests of clients, and shared by all who ask meanwhile.
"""

_PROCESS = """\
## Process

What the operating system knows, under Prometheus's usual names: `process_cpu_seconds_total`, `process_open_fds`,
`process_max_fds`, `process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_start_time_seconds`.
"""


def metrics_page() -> str:
    """The text of `docs/metrics.md`."""
    return "\n".join([_OPENING, *_sections(), _PROCESS])


def _sections() -> Iterator[str]:
    for section in SECTIONS:
        yield f"## {section.title}\n"
        if section.text:
            yield section.text + "\n"
        yield table_row(["name", "type", "labels", "meaning"])
        yield "|---|---|---|---|"
        yield from (table_row(_cells(metric)) for metric in section.metrics)
        yield ""


def _cells(metric: Description) -> Iterable[str]:
    labels = ", ".join(f"`{name}`" for name in metric.label_names)
    return f"`{metric.name}`", metric.kind.value, labels, metric.text


if __name__ == "__main__":
    sys.stdout.write(metrics_page())
