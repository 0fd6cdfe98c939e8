"""The graph of a pipeline, as text and as a picture."""

from xml.etree import ElementTree

from barnabas.pipelines.graph import duration_text, graph_svg, graph_text, nodes_of
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


def test_picture_is_xml_with_a_box_for_each_node_and_a_line_for_each_edge() -> None:
    pipeline = read_pipeline(VIEWS.replace("topic: counts", "topic: a<b&c"), "views.yaml")
    picture = ElementTree.fromstring(graph_svg(pipeline))
    space = "{http://www.w3.org/2000/svg}"
    nodes = nodes_of(pipeline)
    assert len(picture.findall(f".//{space}rect")) == len(nodes)
    edges = [path for path in picture.findall(f".//{space}path") if path.get("marker-end")]
    assert len(edges) == sum(len(node.after) for node in nodes)


def test_duration_is_shown_in_its_largest_whole_unit() -> None:
    assert [duration_text(value) for value in (1, 1_500, 90_000, 3_600_000)] == ["1 ms", "1500 ms", "90 s", "1 h"]
