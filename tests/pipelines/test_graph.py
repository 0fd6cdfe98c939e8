"""The graph of a pipeline, as text."""

from barnabas.pipelines.drawing.graph import duration_text, graph_text
from barnabas.pipelines.spec import read_pipeline
from tests.pipelines.samples import VIEWS


def test_text_shows_what_each_step_reads_and_each_query() -> None:
    text = graph_text(read_pipeline(VIEWS, "views.yaml"))
    assert "▷ views" in text
    assert "  ├─ views\n  └─ users\n" in text
    assert "views.counts: views, users → counts (topic, append)" in text
    assert "not used" not in text


def test_text_names_what_no_sink_uses() -> None:
    text = VIEWS.replace("    from: pages\n", "    from: named\n")
    assert "not used by any sink: pages" in graph_text(read_pipeline(text, "views.yaml"))


def test_duration_is_shown_in_its_largest_whole_unit() -> None:
    assert [duration_text(value) for value in (1, 1_500, 90_000, 3_600_000)] == ["1 ms", "1500 ms", "90 s", "1 h"]
