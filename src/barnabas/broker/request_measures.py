"""What is measured of every request: how long its answer took, the error codes in it, who read it, our own mistakes.

A Fetch that waits for records has two figures: the wait, and our work, which is all of its time but the wait.
"""

from collections.abc import Callable, Mapping, Sequence

from barnabas.base import metric_table as table
from barnabas.base.metrics import Counter, Histogram, Metrics
from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.codecs import COMPILED_APIS, Declined
from barnabas.wire.errors import ErrorCode


class RequestMeasures:
    """One for each broker. Event loop only."""

    def __init__(self, metrics: Metrics, now: Callable[[], float]) -> None:
        """`now` tells seconds. The event loop's own time is no measure: uvloop's moves in whole milliseconds."""
        self.now = now
        seconds = metrics.histograms(table.REQUEST_SECONDS)
        self.seconds: Mapping[int, Histogram] = {key: seconds.of(api.name) for key, api in ALL_APIS.items()}
        self.fetch_wait_seconds = metrics.histogram(table.FETCH_WAIT_SECONDS)
        self._errors = metrics.counters(table.REQUEST_ERRORS)
        self._decoded = metrics.counters(table.REQUESTS_DECODED)
        self._declined = metrics.counters(table.REQUESTS_DECLINED)
        self.bugs = metrics.counters(table.REQUEST_BUGS)

    def add_error(self, api_key: int, code: int, times: int = 1) -> None:
        """Answers of this API carry this code, `times` times more."""
        self._errors.of(ALL_APIS[api_key].name, ErrorCode(code).name).value += times

    def codecs_of(self, api_key: ApiKey) -> tuple[Counter, Counter]:
        """How many requests the compiled codec read, and how many the reference; shown where there are two codecs."""
        if api_key not in COMPILED_APIS:
            return Counter(), Counter()
        name = ALL_APIS[api_key].name
        return self._decoded.of(name, "compiled"), self._decoded.of(name, "reference")

    def declined_of(self, api_key: ApiKey) -> Sequence[Counter]:
        """How many frames the compiled codec declined, by `Declined`."""
        if api_key not in COMPILED_APIS:
            return ()
        name = ALL_APIS[api_key].name
        return (Counter(), *(self._declined.of(name, reason.name.lower()) for reason in Declined))
