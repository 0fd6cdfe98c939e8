"""The graph of a pipeline as a picture: every node and edge once, in columns, with text that is only text."""

import subprocess
import sys
from xml.etree import ElementTree

import pytest

from barnabas.pipelines.drawing.graph import nodes_of
from barnabas.pipelines.drawing.graph_svg import graph_svg
from barnabas.pipelines.spec import Pipeline, read_pipeline
from tests.pipelines.samples import VIEWS

SPACE = "{http://www.w3.org/2000/svg}"


def pipeline_of(text: str) -> Pipeline:
    return read_pipeline(text, "views.yaml")


def boxes(picture: ElementTree.Element) -> dict[str, ElementTree.Element]:
    """The boxes by their captions and titles; each has a name of its own."""
    found = {}
    for group in picture.findall(f"{SPACE}g"):
        by_style = {text.get("class"): text.text for text in group.findall(f"{SPACE}text")}
        name = f"{by_style.get('caption', '')} {by_style['title']}".strip()
        assert name not in found
        found[name] = group
    return found


def left(group: ElementTree.Element) -> int:
    rectangle = group.find(f"{SPACE}rect")
    assert rectangle is not None
    return int(rectangle.attrib["x"])


def arrows(picture: ElementTree.Element) -> list[str]:
    return [path.findtext(f"{SPACE}title", "") for path in picture.findall(f"{SPACE}path")]


def many_steps(count: int) -> str:
    """Each step reads two earlier ones, some from far away."""
    sources = "\n".join(f"  s{number}: {{topic: t{number}, schema: a string}}" for number in range(4))
    names = [f"s{number}" for number in range(4)]
    steps = []
    for number in range(count):
        steps.append(f"  step{number}: {{sql: SELECT * FROM {names[-1]} JOIN {names[number // 2]}}}")
        names.append(f"step{number}")
    sinks = "\n".join(
        f"  out{number}: {{from: step{number}, topic: o{number}, key: a}}" for number in range(0, count, 3)
    )
    joined = "\n".join(steps)
    return f"name: many\ncheckpoint: c\ndead_letter: d\nsources:\n{sources}\nsteps:\n{joined}\nsinks:\n{sinks}\n"


@pytest.mark.parametrize("text", [VIEWS, many_steps(40)], ids=["views", "many"])
def test_every_node_and_edge_appears_once(text: str) -> None:
    pipeline = pipeline_of(text)
    picture = ElementTree.fromstring(graph_svg(pipeline))
    nodes = {node.name: node for node in nodes_of(pipeline)}

    def name(node_name: str) -> str:
        node = nodes[node_name]
        return node.title if node.kind == "dead" else f"{node.kind} {node.title}"

    shown = [box.removeprefix("unused ") for box in boxes(picture)]
    edges = [f"{name(before)} → {name(node.name)}" for node in nodes.values() for before in node.after]
    assert sorted(shown) == sorted(name(node) for node in nodes)
    assert sorted(arrows(picture)) == sorted(edges)


def test_sources_are_left_and_sinks_and_dead_letters_right() -> None:
    columns = {
        name: left(group) for name, group in boxes(ElementTree.fromstring(graph_svg(pipeline_of(VIEWS)))).items()
    }
    assert columns["source views"] == columns["table users"] < columns["step named"] < columns["step pages"]
    assert columns["step pages"] < columns["sink counts"] == columns["sink archive"] == columns["dead letters"]


def test_step_that_reads_nothing_stands_before_its_reader() -> None:
    text = VIEWS.replace("steps:\n", "steps:\n  rules:\n    sql: SELECT 1 AS n\n").replace(
        "FROM named", "FROM named, rules"
    )
    columns = {name: left(group) for name, group in boxes(ElementTree.fromstring(graph_svg(pipeline_of(text)))).items()}
    assert columns["step rules"] == columns["step named"]


def test_step_that_no_sink_uses_is_called_unused() -> None:
    picture = graph_svg(pipeline_of(VIEWS.replace("    from: pages\n", "    from: named\n")))
    assert "unused step pages" in boxes(ElementTree.fromstring(picture))


def test_sink_shows_its_query() -> None:
    group = boxes(ElementTree.fromstring(graph_svg(pipeline_of(VIEWS))))["sink counts"]
    assert "query views.counts" in [text.text for text in group.findall(f"{SPACE}text")]


def test_markup_in_a_pipeline_stays_text() -> None:
    text = VIEWS.replace("topic: counts", r"""topic: "</text><script>alert('&')</script>\u0001\u202E]]>" """)
    picture = ElementTree.fromstring(graph_svg(pipeline_of(text)))

    assert not list(picture.iter(f"{SPACE}script"))
    hints = [group.findtext(f"{SPACE}title", "") for group in picture.findall(f"{SPACE}g")]
    assert "sink counts: topic </text><script>alert('&')</script>��]]>, query views.counts" in hints


def test_long_names_are_cut_and_complete_in_the_hint() -> None:
    long = "n" * 300
    text = (
        VIEWS.replace("  named:\n", f"  {long}:\n")
        .replace("FROM named", f"FROM {long}")
        .replace("from: named", f"from: {long}")
    )
    picture = ElementTree.fromstring(graph_svg(pipeline_of(text)))
    assert f"step {'n' * 39}…" in boxes(picture)
    assert f"source views → step {long}" in arrows(picture)
    assert int(picture.attrib["width"]) < 2_000


def test_many_steps_stay_apart() -> None:
    places = []
    for group in boxes(ElementTree.fromstring(graph_svg(pipeline_of(many_steps(60))))).values():
        rectangle = group.find(f"{SPACE}rect")
        assert rectangle is not None
        places.append(tuple(int(rectangle.attrib[name]) for name in ("x", "y", "width", "height")))
    places.sort()
    for number, (x, y, width, height) in enumerate(places):
        for other_x, other_y, _, _ in places[number + 1 :]:
            assert other_x >= x + width or other_y >= y + height


def test_picture_follows_light_and_dark_mode_and_loads_nothing() -> None:
    picture = graph_svg(pipeline_of(VIEWS))
    assert "@media (prefers-color-scheme: dark)" in picture
    assert picture.count("http") == picture.count("http://www.w3.org/2000/svg") == 1


def test_picture_has_a_title() -> None:
    picture = ElementTree.fromstring(graph_svg(pipeline_of(VIEWS)))
    assert picture.get("role") == "img"
    assert picture.findtext(f"{SPACE}title") == "views on 127.0.0.1:9092"


def test_picture_is_the_same_in_every_process() -> None:
    program = (
        "import sys; from barnabas.pipelines.drawing.graph_svg import graph_svg; "
        "from barnabas.pipelines.spec import read_pipeline; "
        "sys.stdout.buffer.write(graph_svg(read_pipeline(sys.stdin.read(), 'views.yaml')).encode())"
    )
    text = many_steps(20)
    pictures = [
        subprocess.run(
            [sys.executable, "-c", program],
            input=text.encode(),
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout.decode()
        for seed in ("1", "2")
    ]
    assert pictures == [graph_svg(pipeline_of(text))] * 2
