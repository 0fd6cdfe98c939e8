"""A pipeline that runs in a thread of the tests' process, on their one Spark session."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tests.pipelines.running import Kept, run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_SECONDS = 600


class RunningPipeline:
    """Until the end of the `with` block, which stops it in order and raises what it failed with."""

    def __init__(self, session: "SparkSession", file: Path) -> None:
        self.kept = Kept()
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(session, file), name="pipeline")

    def _run(self, session: "SparkSession", file: Path) -> None:
        try:
            run_pipeline(session, file, is_once=False, stop=self._stop, kept=self.kept)
        except BaseException as error:  # noqa: BLE001 - the thread of the test raises it
            self._failure = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(WAIT_SECONDS)
        if error is None:
            self._check()
            assert not self._thread.is_alive(), f"the run does not stop: {self.kept.told}"

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_so():
            self._check()
            assert self._thread.is_alive(), f"the run ended before this: {what}; {self.kept.told}"
            assert time.monotonic() < deadline, f"not in {WAIT_SECONDS} s: {what}; {self.kept.told}, {self.kept.views}"
            time.sleep(0.005)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
