"""The demo's pipeline, in a thread of its own: Spark's start, the run as `barnabas pipeline run` does it, Spark's end.

It is not the main thread, so that signals stay with the demo: Spark's own handler of Ctrl-C would break off batches.
The thread is a daemon: a demo that is interrupted while Spark starts does not wait for it, and the JVM ends when this
process does.
"""

import asyncio
import contextlib
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from examples.demo_view import FleetView

if TYPE_CHECKING:
    from barnabas.pipelines.progress import QueryView

FILE: Final = Path(__file__).parent / "metrics" / "pipeline.yaml"


@dataclass(slots=True)
class Seen:
    """What the run showed last. Written by its thread, one attribute at a time."""

    views: "tuple[QueryView, ...]" = ()
    fleet: FleetView | None = None
    warnings: tuple[str, ...] = ()

    @property
    def lag(self) -> int | None:
        """Of the query that is furthest behind."""
        lags = [view.lag for view in self.views if view.lag is not None]
        return max(lags) if lags else None

    @property
    def has_begun(self) -> bool:
        """Whether each query has done its first batch, which is empty."""
        return bool(self.views) and all(view.batch_id >= 0 for view in self.views)


class PipelineThread:
    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="demo-pipeline", daemon=True)
        self.seen = Seen()
        self.session_started: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """With the error, if one ended it."""

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """After the current batches; at once where Spark has not started yet."""
        self._stop.set()
        if self.session_started.done() and not self.ended.done():
            await asyncio.shield(self.ended)

    def _run(self) -> None:
        try:
            self._run_pipeline()
        except BaseException as error:  # noqa: BLE001 - whoever waits for the end gets it
            self._tell(self.ended, error)
        else:
            self._tell(self.ended)

    def _run_pipeline(self) -> None:
        from barnabas.pipelines.pipeline_session import start_session, stop_session
        from barnabas.pipelines.run import Display, PipelineRun
        from barnabas.pipelines.spec import read_pipeline

        pipeline = read_pipeline(FILE.read_text(encoding="utf-8"), str(FILE))
        checkpoint = self._directory / "checkpoint"
        pipeline = replace(pipeline, bootstrap=self._bootstrap, checkpoint=str(checkpoint))
        settings = {
            "spark.local.dir": str(self._directory / "spark"),
            "spark.sql.warehouse.dir": str(self._directory / "warehouse"),
            **pipeline.spark,
        }
        spark = start_session(pipeline.name, None, settings, self._directory / "spark.log")
        self._tell(self.session_started)
        try:
            PipelineRun(spark, pipeline, FILE, Display(self._show, self._warn, self._show_rows)).run(self._stop)
        finally:
            stop_session(spark)

    def _tell(self, future: "asyncio.Future[None]", error: BaseException | None = None) -> None:
        def settle() -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(settle)

    def _show(self, views: "list[QueryView]") -> None:
        self.seen.views = tuple(views)

    def _warn(self, text: str) -> None:
        self.seen.warnings = (*self.seen.warnings, text)

    def _show_rows(self, sink: str, batch_id: int, columns: list[str], rows: list[list[str]], total: int) -> None:
        if rows:
            self.seen.fleet = FleetView(columns, sorted(rows))
