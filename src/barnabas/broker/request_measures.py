"""What is measured of every request: how long its answer took, the error codes in it, and our own mistakes.

A Fetch that waits for records has two figures: the wait, and our work, which is all of its time but the wait.
"""

from collections.abc import Callable, Mapping

from barnabas.base import metric_table as table
from barnabas.base.metrics import Histogram, Metrics
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode


class RequestMeasures:
    """One for each broker. Event loop only."""

    def __init__(self, metrics: Metrics, now: Callable[[], float]) -> None:
        """`now` tells seconds. The event loop's own time is no measure: uvloop's moves in whole milliseconds."""
        self.now = now
        seconds = metrics.histograms(table.REQUEST_SECONDS)
        self.seconds: Mapping[int, Histogram] = {key: seconds.of(api.name) for key, api in APIS.items()}
        """By API key: those that answer without a `Request` observe by themselves."""
        self.fetch_wait_seconds = metrics.histogram(table.FETCH_WAIT_SECONDS)
        self._errors = metrics.counters(table.REQUEST_ERRORS)
        self.bugs = metrics.counters(table.REQUEST_BUGS)

    def add_error(self, api_key: int, code: int, times: int = 1) -> None:
        """Answers of this API carry this code, a number of times."""
        self._errors.of(APIS[api_key].name, ErrorCode(code).name).value += times
