"""Runs a pipeline in this process, and keeps what it says."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.pipelines.progress import QueryView


@dataclass
class Kept:
    """What a run said."""

    views: "list[QueryView]" = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    rows: list[tuple[str, int, list[str], list[list[str]], int]] = field(default_factory=list)
    has_progress: threading.Event = field(default_factory=threading.Event)

    def show(self, views: "list[QueryView]") -> None:
        self.views = views
        if all(view.input_rows for view in views):
            self.has_progress.set()

    def tell(self, text: str) -> None:
        self.told.append(text)

    def show_rows(self, sink: str, batch_id: int, columns: list[str], rows: list[list[str]], total: int) -> None:
        self.rows.append((sink, batch_id, columns, rows, total))


def write_file(directory: Path, text: str, broker: Broker) -> Path:
    file = directory / "pipeline.yaml"
    file.write_text(text.replace("\ncheckpoint:", f"\nbootstrap: {broker.bootstrap}\ncheckpoint:", 1), encoding="utf-8")
    return file


def run_pipeline(
    session: "SparkSession",
    file: Path,
    *,
    is_once: bool = True,
    stop: threading.Event | None = None,
    kept: Kept | None = None,
) -> Kept:
    from barnabas.pipelines.run import Display, PipelineRun
    from barnabas.pipelines.spec import read_pipeline

    kept = kept or Kept()
    pipeline = read_pipeline(file.read_text(encoding="utf-8"), str(file))
    display = Display(kept.show, kept.tell, kept.show_rows)
    kept.views = PipelineRun(session, pipeline, file, display, is_once=is_once).run(stop or threading.Event())
    return kept
