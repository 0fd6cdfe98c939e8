"""Boxes, arrows and text as SVG."""

from xml.etree import ElementTree

import pytest

from barnabas.pipelines.drawing.picture import COLOURS, Arrow, Box, Label, Picture, cells, shown, svg_text, wrapped

SPACE = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        (" two\n\tlines ", "two lines"),
        ("zero\0 and\x1b[31m", "zero� and�[31m"),
        ("\ud800 alone", "� alone"),
        ("\u202edesrever", "�desrever"),
        ("\ufffe", "�"),
    ],
)
def test_text_is_one_line_that_is_safe_to_show(text: str, line: str) -> None:
    assert shown(text) == line


@pytest.mark.parametrize(
    ("text", "cells_max", "line"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("ab cdef", 4, "ab…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
    ],
)
def test_text_is_cut_to_its_cells(text: str, cells_max: int, line: str) -> None:
    assert shown(text, cells_max) == line
    assert cells(line) <= cells_max


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short", ["short"]),
        ("two words", ["two words"]),
        ("broken between words", ["broken", "between w…"]),
        ("atthisspace again", ["atthisspac", "e again"]),
        ("0123456789 ends", ["0123456789", "ends"]),
        ("x" * 30, ["x" * 10, "x" * 9 + "…"]),
        ("", [""]),
    ],
)
def test_text_is_wrapped_between_words(text: str, lines: list[str]) -> None:
    assert wrapped(text, 10, 2) == lines


def test_wider_text_has_a_wider_box() -> None:
    short, long = (Label("blue", title, "step", ("detail",), "") for title in ("a", "a" * 30))
    assert long.width > short.width
    assert Label("blue", "a", "", ("1", "2"), "").height > short.height


def test_everything_lies_within_the_picture() -> None:
    label = Label("blue", "<&>", "", ('"',), "<hint>")
    picture = ElementTree.fromstring(
        svg_text(Picture("h", (Box(10, 20, 100, 50, label),), (Arrow(((0, 0), (300, 0), (400, 200)), "a → b"),)))
    )
    assert int(picture.attrib["width"]) > 400
    assert int(picture.attrib["height"]) > 200
    assert [text.text for text in picture.iter(f"{SPACE}text")] == ["h", "<&>", '"']
    path = picture.find(f"{SPACE}path")
    assert path is not None
    assert path.attrib["d"] == "M0,0 L300,0 C350,0 350,200 400,200"


def test_arrow_ends_in_a_marker_of_the_picture() -> None:
    arrows = (Arrow(((0, 0), (9, 9)), ""), Arrow(((0, 0), (9, 9)), "", is_for_failures=True))
    picture = ElementTree.fromstring(svg_text(Picture("", (), arrows)))
    markers = {f"url(#{marker.get('id')})" for marker in picture.iter(f"{SPACE}marker")}
    assert {path.get("marker-end") for path in picture.findall(f"{SPACE}path")} == markers


def test_every_colour_has_a_light_and_a_dark_form() -> None:
    style = ElementTree.fromstring(svg_text(Picture("", (), ()))).findtext(f"{SPACE}style", "")
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    for colour in COLOURS:
        assert f".{colour} {{" in light
        assert f".{colour} {{" in dark
