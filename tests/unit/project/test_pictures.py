"""The pictures in docs are what their sources give, and the one of the architecture has every package in its place.

`make docs` (or `python -m tests.unit.project.test_pictures`) draws them anew.
"""

import tomllib
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.map_picture import picture_of, read_map

ROOT = Path(__file__).resolve().parents[3]
ARCHITECTURE = ROOT / "docs" / "architecture.svg"
ARCHITECTURE_SOURCE = ROOT / "docs" / "pictures" / "architecture.toml"
PIPELINE = ROOT / "docs" / "pipeline.svg"
PIPELINE_SOURCE = ROOT / "examples" / "metrics" / "pipeline.yaml"
HOW = "run `make docs`"


def architecture_picture() -> str:
    return picture_of(ARCHITECTURE_SOURCE.read_text(encoding="utf-8"))


def pipeline_picture() -> str:
    """As `barnabas pipeline explain --svg` draws it."""
    from barnabas.pipelines.drawing.graph_svg import graph_svg
    from barnabas.pipelines.spec import read_pipeline

    return graph_svg(read_pipeline(PIPELINE_SOURCE.read_text(encoding="utf-8"), PIPELINE_SOURCE.name))


def test_architecture_picture_is_what_its_source_gives() -> None:
    assert ARCHITECTURE.read_text(encoding="utf-8") == architecture_picture(), HOW


def test_pipeline_picture_is_what_the_example_gives() -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed: pip install barnabas[spark]")

    assert PIPELINE.read_text(encoding="utf-8") == pipeline_picture(), HOW


def test_architecture_picture_has_every_package() -> None:
    picture = ElementTree.fromstring(architecture_picture())
    titles = {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text") if text.get("class") == "title"}
    packages = {path.parent.name for path in (ROOT / "src" / "barnabas").glob("*/__init__.py")}

    assert packages - titles == set()


def test_architecture_picture_has_the_layers_in_the_order_of_the_imports() -> None:
    """All but three: `net` is where a request comes in, `metadata` and `sim` are at the side."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    areas = read_map(tomllib.loads(ARCHITECTURE_SOURCE.read_text(encoding="utf-8"))["map"])
    areas["broker"] = areas["handlers"]
    ordered = areas.keys() - {"net", "metadata", "sim"}
    layers = [
        {name.strip().removeprefix("barnabas.") for name in layer.split("|")} & ordered
        for layer in project["tool"]["importlinter"]["contracts"][0]["layers"]
    ]
    rows = [[areas[name].top for name in sorted(layer)] for layer in layers if layer]

    assert len(rows) > 5
    assert [(upper, lower) for upper, lower in pairwise(rows) if max(upper) > min(lower)] == []


def test_map_refuses_a_box_that_is_no_rectangle() -> None:
    with pytest.raises(AssertionError, match="'a' is no rectangle"):
        read_map("a a b\nb a b")


def main() -> None:
    ARCHITECTURE.write_text(architecture_picture(), encoding="utf-8")
    PIPELINE.write_text(pipeline_picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
