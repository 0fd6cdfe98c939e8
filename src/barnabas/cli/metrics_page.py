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
serves three pages over HTTP:

| path | response |
|---|---|
| `/metrics` | the metrics below in Prometheus's text format |
| `/healthz` | 200 when the broker is ready, else 503; the body says why, as JSON |
| `/readyz` | 200 when the broker can be stopped without harm to any partition, else 503; the body says why, as JSON |

The port has neither TLS nor a login, and shows the names of topics and groups: give it an address that only
operators can reach. [`deploy/`](../deploy/README.md) has a dashboard for Grafana and alert rules for Prometheus.

Counters start at zero when the broker starts. A metric with labels, or a histogram, appears only with its first
event: a query that must return a number needs `or vector(0)`. A scrape is rendered in small steps between the requests
of clients, and scrapes that arrive meanwhile share its result.
"""

_PROCESS = """\
## Process

What the operating system reports, under Prometheus's usual names: `process_cpu_seconds_total`, `process_open_fds`,
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
