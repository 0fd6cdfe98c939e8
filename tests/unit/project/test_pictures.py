"""The pictures in docs are what their sources give, and the one of the architecture has every package in its place.

`make docs` (or `python -m tests.unit.project.test_pictures`) draws them anew. The stills of a terminal show text that
was captured once (`capture_stills`); the words in it are those that the commands print today.
"""

import ast
import io
import os
import re
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree

import pytest

from barnabas.cli.group.group_history import say_history
from barnabas.groups.history import decode_history
from tests.support.map_picture import picture_of, read_map
from tests.unit.project.capture_stills import HISTORY_COMMAND, HISTORY_RECORD, end_of_run
from tests.unit.project.terminal_stills import COLUMNS, HISTORY, RUN, STILLS, STYLE, Still, broken, cells, draw

ROOT = Path(__file__).resolve().parents[3]
ARCHITECTURE = ROOT / "docs" / "architecture.svg"
ARCHITECTURE_SOURCE = ROOT / "docs" / "pictures" / "architecture.toml"
PIPELINE = ROOT / "docs" / "pipeline.svg"
PIPELINE_SOURCE = ROOT / "examples" / "metrics" / "pipeline.yaml"
DEMO = ROOT / "examples" / "demo.py"
STILL_BYTES_MAX = 100_000
HOW = "run `make docs`"
CAPTURE_RUN = "run `python -m tests.unit.project.capture_stills run`, then `make docs`"


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
    """All but four: `net` is where a request comes in, `metadata`, `controller` and `sim` are at the side."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    areas = read_map(tomllib.loads(ARCHITECTURE_SOURCE.read_text(encoding="utf-8"))["map"])
    areas["broker"] = areas["handlers"]
    ordered = areas.keys() - {"net", "metadata", "controller", "sim"}
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


# --- stills of a terminal -------------------------------------------------------------------------------------------


@contextmanager
def in_utc() -> Iterator[None]:
    """The commands print local times; the stills were captured in UTC."""
    try:
        with patch.dict(os.environ, TZ="UTC"):
            time.tzset()
            yield
    finally:
        time.tzset()


def history_text() -> str:
    """The text of the still, with the story as it is told today."""
    printed = io.StringIO()
    with in_utc(), redirect_stdout(printed):
        say_history(decode_history(HISTORY_RECORD.read_bytes()))
    command, heading, *_ = HISTORY.text().splitlines()
    return "\n".join([command, heading, printed.getvalue()])


def demo_lines() -> Iterator[re.Pattern[str]]:
    """Every line that the demo may print, with anything where it fills something in."""
    for call in ast.walk(ast.parse(DEMO.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] in ("say", "line"):
            values = call.args[0].values if isinstance(call.args[0], ast.JoinedStr) else call.args
            parts = [re.escape(str(value.value)) if isinstance(value, ast.Constant) else ".+" for value in values]
            yield re.compile("".join(parts))


@pytest.mark.parametrize("still", STILLS, ids=lambda still: still.name)
def test_still_is_what_its_text_gives(still: Still) -> None:
    assert still.picture.read_text(encoding="utf-8") == still.draw(), HOW


@pytest.mark.parametrize("still", STILLS, ids=lambda still: still.name)
def test_still_is_small_and_loads_nothing(still: Still) -> None:
    picture = still.draw()

    assert ElementTree.fromstring(picture).get("role") == "img"
    assert len(picture.encode()) < STILL_BYTES_MAX
    assert picture.count("http") == 1  # the namespace
    assert not any(word in picture for word in ("url(", "href", "@import", "<script"))


def test_still_of_a_history_says_what_the_command_prints_today() -> None:
    assert HISTORY.text() == history_text(), HOW
    assert HISTORY.text().startswith(f"$ {HISTORY_COMMAND}\ngroup 'kitchen' is Stable: ")


def test_still_of_the_demo_has_the_words_that_the_demo_prints_today() -> None:
    steps, alerts, numbers, verdict = (block.splitlines() for block in STYLE.sub("", RUN.text()).split("\n\n"))
    patterns = list(demo_lines())
    columns = re.search(r"say_table\((\(.*?\))", DEMO.read_text(encoding="utf-8"))

    assert columns is not None
    assert alerts[0].split() == [name.rstrip("#") for name in ast.literal_eval(columns[1])], CAPTURE_RUN
    lines = [*steps, *numbers, *verdict]
    assert [line for line in lines if not any(one.fullmatch(line) for one in patterns)] == [], CAPTURE_RUN
    assert len(alerts) > 5
    assert len(lines) > 10


def test_end_of_a_run_has_the_lines_that_stay_and_the_results() -> None:
    view = "\x1b[36mrunning\x1b[0m"
    written = (
        f"hello\r\n1 broker     ready\r\n\x1b[?25l{view}\r\x1b[2K2 Spark      started\n{view}\r\n"
        f"01:57:05  cpu\r\x1b[1A\x1b[2K\x1b[?25h\r\x1b[1A\x1b[2K\r\n\x1b[1mA\x1b[0m\x1b[1m B\x1b[0m\r\nAll good.\r\n"
    )

    assert end_of_run(written) == "1 broker     ready\n2 Spark      started\n\n\x1b[1mA B\x1b[0m\nAll good.\n"


def test_still_draws_styles_where_they_are() -> None:
    picture = ElementTree.fromstring(draw("a \x1b[1;31mred & bold\x1b[0m word\n", "title"))
    shown = [(one.get("class"), one.get("x"), one.text) for one in picture.iter("{http://www.w3.org/2000/svg}text")]

    assert shown[1:] == [(None, "16.0", "a"), ("s1 s31", "32.8", "red\xa0&\xa0bold"), (None, "125.2", "word")]


@pytest.mark.parametrize("word", ["word", "w" * COLUMNS, "w" * (COLUMNS + 1)])
def test_long_line_breaks_between_words_and_stays_indented(word: str) -> None:
    line = "  " + " ".join([word] * 60)
    rows = ["".join(character for character, _ in row) for row in broken(cells(line))]

    assert max(map(len, rows)) <= COLUMNS
    assert all(row.startswith("  ") and row[2] == "w" for row in rows)
    assert "".join(rows).replace(" ", "") == line.replace(" ", "")


def main() -> None:
    ARCHITECTURE.write_text(architecture_picture(), encoding="utf-8")
    PIPELINE.write_text(pipeline_picture(), encoding="utf-8")
    HISTORY.source.write_text(history_text(), encoding="utf-8")
    for still in STILLS:
        still.picture.write_text(still.draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
