"""`barnabas pipeline`: check, explain and run a pipeline of one YAML file on Spark.

`check` and `run` start Spark, which takes some seconds; `explain` reads the file alone. Mistakes are lines `FILE:LINE:
what is wrong`, and the exit status is 1. SIGTERM and Ctrl-C end a run after its current batches; a second one at once.
"""

import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.output import complain, plural, remark, say
from barnabas.cli.remote import CommandFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.pipelines.nodes import Mistake
    from barnabas.pipelines.progress import QueryView
    from barnabas.pipelines.spec import Pipeline

app = typer.Typer(help="Run data pipelines on Spark.", no_args_is_help=True)

_PORT_MAX: Final = 65_535
_SPARK_LOG: Final = "spark.log"
_PACKAGES_OF_FILES: Final = {"yaml": "PyYAML"}
_PACKAGES: Final = {**_PACKAGES_OF_FILES, "pyspark": "pyspark", "pyarrow": "pyarrow"}

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline, a YAML file; see docs/pipelines.md.")]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="BARNABAS_BOOTSTRAP",
        help="A broker of the cluster, instead of the file's.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master. [default: the file's, or local[*]]", show_default=False),
]


@app.command()
def check(
    file: File,
    bootstrap: Bootstrap = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not check that the topics exist.")] = False,
    master: Master = None,
) -> None:
    """Check a pipeline for mistakes without running it.

    Example: barnabas pipeline check views.yaml
    """
    _require(_PACKAGES)
    pipeline = _read(file, bootstrap)
    from barnabas.client.errors import ClusterUnreachable
    from barnabas.pipelines.check import advice_for, check_pipeline, topics_of
    from barnabas.pipelines.pipeline_session import stop_session

    topics = None
    if not offline:
        try:
            topics = topics_of(pipeline.bootstrap)
        except ClusterUnreachable as error:
            remark(f"the topics are not checked: {error}")
    with tempfile.TemporaryDirectory(prefix="barnabas-check-") as scratch:
        spark = _session(pipeline, master, Path(scratch) / _SPARK_LOG)
        try:
            mistakes = check_pipeline(spark, pipeline, file.parent, topics)
            advice = [] if mistakes else advice_for(spark, pipeline, file.parent)
        finally:
            stop_session(spark)
    for hint in advice:
        say(f"{file}:{hint.line}: warning: {hint.message}")
    if mistakes:
        _say_mistakes(file, mistakes)
        raise typer.Exit(1)
    parts = (("source", pipeline.sources), ("step", pipeline.steps), ("sink", pipeline.sinks))
    counts = ", ".join(plural(len(members), noun) for noun, members in parts)
    say(f"{file}: no mistakes found ({counts})")


@app.command()
def explain(
    file: File,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it as a picture in this file.")] = None,
) -> None:
    """Show what a pipeline reads, computes and writes.

    Example: barnabas pipeline explain views.yaml --svg views.svg
    """
    _require(_PACKAGES_OF_FILES)
    from barnabas.pipelines.drawing.graph import graph_text
    from barnabas.pipelines.drawing.graph_svg import graph_svg

    pipeline = _read(file, None)
    sys.stdout.write(graph_text(pipeline))
    if svg is not None:
        try:
            svg.write_text(graph_svg(pipeline), encoding="utf-8")
        except OSError as error:
            raise CommandFailed(f"cannot write {svg}: {error.strerror}") from error


@app.command()
def run(
    file: File,
    bootstrap: Bootstrap = None,
    once: Annotated[bool, typer.Option("--once", help="Process the available records, then exit.")] = False,
    master: Master = None,
    metrics_listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve /metrics and /healthz here.", show_default=False),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="Like --metrics-listen, on 127.0.0.1.", min=0, max=_PORT_MAX, show_default=False
        ),
    ] = None,
) -> None:
    """Run a pipeline until Ctrl-C.

    Example: barnabas pipeline run views.yaml --once
    """
    _require(_PACKAGES)
    metrics_address = _metrics_address(metrics_listen, metrics_port)
    pipeline = _read(file, bootstrap)
    from barnabas.pipelines.pipeline_session import stop_session
    from barnabas.pipelines.run import SparkLost

    stop = _stop_on_signals()
    log_file = file.parent / pipeline.checkpoint / _SPARK_LOG
    remark(f"starting Spark for pipeline {pipeline.name}; its log is {log_file}")
    spark = _session(pipeline, master, log_file)
    try:
        _run(spark, pipeline, file, stop, is_once=once, metrics_address=metrics_address)
    except SparkLost as error:
        raise CommandFailed(f"{error}; see {log_file}") from None
    finally:
        stop_session(spark)


def _run(
    spark: "SparkSession",
    pipeline: "Pipeline",
    file: Path,
    stop: threading.Event,
    *,
    is_once: bool,
    metrics_address: tuple[str, int] | None,
) -> None:
    from barnabas.cli.pipeline.pipeline_view import make_screen, summary
    from barnabas.pipelines.metrics import MetricsServer
    from barnabas.pipelines.pipeline_session import rotate_log
    from barnabas.pipelines.run import Display, PipelineRun

    screen = make_screen(pipeline.name)
    log_file = file.parent / pipeline.checkpoint / _SPARK_LOG

    def show(views: "list[QueryView]") -> None:
        screen.show(views)
        rotate_log(log_file)

    display = Display(show, screen.tell, screen.show_rows)
    pipeline_run = PipelineRun(spark, pipeline, file, display, is_once=is_once)
    server = None
    if metrics_address is not None:
        host, port = metrics_address
        try:
            server = MetricsServer(pipeline_run.metrics, host, port)
        except OSError as error:
            raise CommandFailed(f"cannot serve metrics on {host}, port {port}: {error.strerror}") from error
        remark(f"metrics on http://{f'[{host}]' if ':' in host else host}:{server.port}/metrics")
    try:
        with screen:
            views = pipeline_run.run(stop)
    finally:
        if server is not None:
            server.close()
    for line in summary(views):
        say(line)


def _metrics_address(listen: str | None, port: int | None) -> tuple[str, int] | None:
    if listen is not None and port is not None:
        raise CommandFailed("give --metrics-listen or --metrics-port, not both")
    if listen is None:
        return None if port is None else ("127.0.0.1", port)
    host, colon, number = listen.rpartition(":")
    if not (colon and host and number.isascii() and number.isdecimal() and int(number) <= _PORT_MAX):
        raise CommandFailed(f"--metrics-listen must be HOST:PORT, not '{listen}'")
    return host.removeprefix("[").removesuffix("]"), int(number)


def _read(file: Path, bootstrap: str | None) -> "Pipeline":
    from dataclasses import replace

    from barnabas.pipelines.spec import InvalidPipeline, read_pipeline

    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CommandFailed(f"cannot read {file}: it is not UTF-8 text") from None
    try:
        pipeline = read_pipeline(text, str(file))
    except InvalidPipeline as error:
        _say_mistakes(file, error.mistakes)
        raise typer.Exit(1) from None
    return pipeline if bootstrap is None else replace(pipeline, bootstrap=bootstrap)


def _say_mistakes(file: Path, mistakes: "list[Mistake]") -> None:
    for mistake in mistakes:
        say(f"{file}:{mistake.line}: {mistake.message}")
    complain(f"{file} has {plural(len(mistakes), 'mistake')}")


def _require(packages: Mapping[str, str]) -> None:
    from importlib.util import find_spec

    for module, package in packages.items():
        if find_spec(module) is None:
            raise CommandFailed(f"pipelines need the package {package}: pip install 'barnabas[spark]'")


def _session(pipeline: "Pipeline", master: str | None, log_file: Path) -> "SparkSession":
    from barnabas.pipelines.pipeline_session import start_session

    return start_session(pipeline.name, master, pipeline.spark, log_file)


def _stop_on_signals() -> threading.Event:
    """Set by the first signal; the second finds the handlers that were there before."""
    stop = threading.Event()
    before: dict[int, Any] = {}

    def note(number: int, _: object) -> None:
        for one, handler in before.items():
            signal.signal(one, handler)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, note)
    return stop
