"""The `pipeline` commands, as far as they need no Spark."""

import urllib.request
from pathlib import Path

import pytest

from barnabas.cli.pipeline.pipeline_commands import _metrics_address
from barnabas.cli.pipeline.pipeline_view import LineScreen, line, summary
from barnabas.cli.remote import CommandFailed
from barnabas.pipelines.drawing.graph_svg import graph_svg
from barnabas.pipelines.metrics import MetricsServer, PipelineMetrics
from barnabas.pipelines.progress import QueryView
from barnabas.pipelines.spec import read_pipeline
from tests.pipelines.samples import VIEWS
from tests.support.command_line import run_line

VIEW = QueryView("counts", "running", 3, 1234.5, 15, 1200, 5, 2048, 30, 4, 2, 0, "")


def test_explain_draws_text_and_picture(tmp_path: Path) -> None:
    file = tmp_path / "views.yaml"
    file.write_text(VIEWS)
    said = run_line(f"barnabas pipeline explain {file} --svg {tmp_path}/views.svg", "127.0.0.1:1")
    assert "views.counts: views, users → counts (topic, append)" in said
    picture = (tmp_path / "views.svg").read_text(encoding="utf-8")
    assert picture == graph_svg(read_pipeline(VIEWS, "views.yaml"))


def test_explain_says_when_the_picture_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "views.yaml"
    file.write_text(VIEWS)
    said = run_line(f"barnabas pipeline explain {file} --svg {tmp_path}/none/views.svg", "127.0.0.1:1")
    assert said.endswith(f"barnabas: cannot write {tmp_path}/none/views.svg: No such file or directory\n")


def test_mistakes_are_lines_with_file_and_number(tmp_path: Path) -> None:
    file = tmp_path / "views.yaml"
    file.write_text(VIEWS.replace("watermark:", "watermrak:").replace("from: pages", "from: page"))
    said = run_line(f"barnabas pipeline explain {file}", "127.0.0.1:1").splitlines()
    assert said[0] == f"{file}:9: source 'views' has no key 'watermrak'; did you mean 'watermark'?"
    assert said[1] == f"{file}:27: sink 'counts' writes 'page', which is not a source or a step; did you mean 'pages'?"
    assert said[2] == f"barnabas: {file} has 2 mistakes"


def test_missing_file_is_one_line(tmp_path: Path) -> None:
    said = run_line(f"barnabas pipeline explain {tmp_path}/none.yaml", "127.0.0.1:1")
    assert said == f"barnabas: cannot read {tmp_path}/none.yaml: No such file or directory\n"


def test_line_of_query_says_what_matters() -> None:
    assert line(VIEW) == (
        "counts: running, batch 3 in 1.2 s, 1,234 rows/s, lag 15, 5 rows (2.0 KiB) kept, 4 late, 2 bad"
    )


def test_summary_says_what_was_read() -> None:
    assert list(summary([VIEW])) == ["counts: 30 records read, lag 15, 4 late, 2 bad"]


def test_lines_are_said_once_for_each_batch(capsys: pytest.CaptureFixture[str]) -> None:
    screen = LineScreen()
    screen.show([VIEW])
    screen.show([VIEW])
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_rows_of_console_are_aligned_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    LineScreen().show_rows("screen", 2, ["name", "n"], [["Annabel", "1"], ["Bo", "22"]], 5)
    assert capsys.readouterr().out.splitlines() == [
        "screen, batch 2: 5 rows",
        "name     n",
        "Annabel  1",
        "Bo       22",
        "… and 3 more",
    ]


@pytest.mark.parametrize(
    ("listen", "port", "address"),
    [
        (None, None, None),
        (None, 9404, ("127.0.0.1", 9404)),
        ("0.0.0.0:9404", None, ("0.0.0.0", 9404)),
        ("[::1]:0", None, ("::1", 0)),
    ],
)
def test_metrics_listen_where_they_are_told(
    listen: str | None, port: int | None, address: tuple[str, int] | None
) -> None:
    assert _metrics_address(listen, port) == address


@pytest.mark.parametrize(("listen", "port"), [("9404", None), (":9404", None), ("host:99999", None), ("host:1", 1)])
def test_address_for_metrics_that_makes_no_sense_is_refused(listen: str, port: int | None) -> None:
    with pytest.raises(CommandFailed, match="--metrics-listen"):
        _metrics_address(listen, port)


def test_metrics_are_served_on_another_address_than_the_usual_one() -> None:
    server = MetricsServer(PipelineMetrics("views", [VIEW]), "127.0.0.2", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.2:{server.port}/metrics", timeout=120) as answer:
            assert b'barnabas_pipeline_batch_id{pipeline="views",query="counts"} 3.0' in answer.read()
    finally:
        server.close()


def test_long_log_of_spark_is_moved_and_its_writer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
    from barnabas.pipelines import pipeline_session as sessions

    monkeypatch.setattr(sessions, "_LOG_BYTES_MAX", 100)
    log_file = tmp_path / "spark.log"
    with open(log_file, "ab", buffering=0) as writer:
        writer.write(b"a" * 99)
        sessions.rotate_log(log_file)
        assert log_file.stat().st_size == 99
        writer.write(b"b")
        sessions.rotate_log(log_file)
        writer.write(b"c")
    assert (tmp_path / "spark.log.1").read_bytes() == b"a" * 99 + b"b"
    assert log_file.read_bytes() == b"c"
