"""The `pipeline` commands, as far as they need no Spark."""

from pathlib import Path

import pytest

from barnabas.cli.pipeline_view import LineScreen, line, summary
from barnabas.pipelines.progress import QueryView
from tests.pipelines.samples import VIEWS
from tests.support.command_line import run_line

VIEW = QueryView("counts", "running", 3, 1234.5, 15, 1200, 5, 2048, 30, 4, 2, 0, "")


def test_explain_draws_text_and_picture(tmp_path: Path) -> None:
    file = tmp_path / "views.yaml"
    file.write_text(VIEWS)
    said = run_line(f"barnabas pipeline explain {file} --svg {tmp_path}/views.svg", "127.0.0.1:1")
    assert "views.counts: views, users → counts (topic, append)" in said
    assert (tmp_path / "views.svg").read_text().startswith("<svg")


def test_mistakes_are_lines_with_file_and_number(tmp_path: Path) -> None:
    file = tmp_path / "views.yaml"
    file.write_text(VIEWS.replace("watermark:", "watermrak:").replace("from: pages", "from: page"))
    said = run_line(f"barnabas pipeline explain {file}", "127.0.0.1:1").splitlines()
    assert said[0] == f"{file}:9: source 'views' has no key 'watermrak'; did you mean 'watermark'?"
    assert said[1] == f"{file}:27: sink 'counts' writes 'page', which is no source or step; did you mean 'pages'?"
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
