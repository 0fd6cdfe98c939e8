"""The numbers of a running pipeline in Prometheus's text format, on a small HTTP port.

`/metrics` has them, `/healthz` says 200 while every query runs and 503 while one waits for its next start. The pages
are made from what the run looked at last; asking costs the run nothing.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from barnabas.base.ids import TopicPartition
from barnabas.pipelines.progress import QueryView

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_GAUGES: Final = (
    ("rows_per_second", "Rows per second in the last batch."),
    ("batch_ms", "Milliseconds that the last batch took."),
    ("state_rows", "Rows kept as state."),
    ("state_bytes", "Memory of the state, in bytes."),
    ("batch_id", "The number of the last batch."),
)
_COUNTERS: Final = (
    ("input_rows", "Records read."),
    ("late_rows", "Rows that arrived after the watermark and were dropped."),
    ("bad_rows", "Records that did not parse."),
    ("restarts", "Restarts after a failure."),
)


@dataclass(slots=True, eq=False)
class PipelineMetrics:
    """What was looked at last."""

    pipeline: str
    views: list[QueryView] = field(default_factory=list)
    lags: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)

    @property
    def is_healthy(self) -> bool:
        return all(view.state != "waiting" for view in self.views)

    def collect(self) -> Iterator[Metric]:
        labels = ["pipeline", "query"]
        for name, text in _GAUGES:
            gauge = GaugeMetricFamily(f"barnabas_pipeline_{name}", text, labels=labels)
            for view in self.views:
                gauge.add_metric([self.pipeline, view.name], getattr(view, name))
            yield gauge
        for name, text in _COUNTERS:
            counter = CounterMetricFamily(f"barnabas_pipeline_{name}", text, labels=labels)
            for view in self.views:
                counter.add_metric([self.pipeline, view.name], getattr(view, name))
            yield counter
        lag = GaugeMetricFamily(
            "barnabas_pipeline_lag", "Records that have not been read yet.", labels=[*labels, "topic", "partition"]
        )
        for query, lags in self.lags.items():
            for partition, count in sorted(lags.items()):
                lag.add_metric([self.pipeline, query, partition.topic, str(partition.partition)], count)
        yield lag

    def text(self) -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)


class MetricsServer:
    """Serves until `close`. OSError when the address cannot be bound."""

    def __init__(self, metrics: PipelineMetrics, host: str, port: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._answer(200, metrics.text())
                elif self.path == "/healthz":
                    self._answer(200 if metrics.is_healthy else 503, b"ok\n" if metrics.is_healthy else b"failing\n")
                else:
                    self._answer(404, b"see /metrics and /healthz\n")

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", _TEXT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Requests are not worth a line each."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="barnabas-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
