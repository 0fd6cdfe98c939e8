"""Stills of a terminal as SVG, drawn from text that a command printed: `docs/pictures/*.txt`.

A still is one file that loads nothing. It is dark in light and in dark mode, as terminals are. Lines that are longer
than the terminal break between words. Bold and the usual colours are drawn; a line that begins with `$ ` is what a
person typed. The same text always gives the same still. `capture_stills` writes the texts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

DOCS = Path(__file__).resolve().parents[3] / "docs"
COLUMNS = 100

FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
FONT_SIZE = 14
CELL_WIDTH = 8.4
LINE_HEIGHT = 19
MARGIN = 16
BAR_HEIGHT = 34
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#76e3ea"}
WIDE_GAPS = {" ": "&#160;"}
"""Not every viewer keeps several spaces in a row."""
STYLE = re.compile(r"\x1b\[([\d;]*)m")

Cell = tuple[str, str]
"""A character and the classes it is drawn with."""


@dataclass(frozen=True, slots=True)
class Still:
    """A picture in docs, and the text that it shows; `title` is what the window is called."""

    name: str
    title: str

    @property
    def source(self) -> Path:
        return DOCS / "pictures" / f"{self.name}.txt"

    @property
    def picture(self) -> Path:
        return DOCS / f"{self.name}.svg"

    def text(self) -> str:
        return self.source.read_text(encoding="utf-8")

    def draw(self) -> str:
        return draw(self.text(), self.title)


RUN = Still("run", "make run")
HISTORY = Still("group-history", "barnabas group describe --history")
STILLS = (RUN, HISTORY)


def draw(text: str, title: str) -> str:
    rows = [row for line in text.splitlines() for row in broken(cells(line))]
    width = round(2 * MARGIN + COLUMNS * CELL_WIDTH)
    height = BAR_HEIGHT + len(rows) * LINE_HEIGHT + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' role="img">',
        f"<title>{escape(title)}</title>",
        "<style>",
        f"text {{ font-family: {FONTS}; font-size: {FONT_SIZE}px; fill: #d5dbe1 }}",
        ".title { fill: #9198a1; text-anchor: middle }",
        ".s1 { font-weight: bold; fill: #ffffff }",
        ".s2 { fill: #9198a1 }",
        *(f".s{code} {{ fill: {colour} }}" for code, colour in COLOURS.items()),
        "</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#161b22" stroke="#484f58"/>',
        *(f'<circle cx="{MARGIN + 6 + 18 * n}" cy="17" r="5" fill="#484f58"/>' for n in range(3)),
        f'<text class="title" x="{width // 2}" y="22">{escape(title)}</text>',
        *(part for number, row in enumerate(rows, 1) for part in drawn(row, BAR_HEIGHT + number * LINE_HEIGHT - 5)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def cells(line: str) -> list[Cell]:
    """The characters of a line without what styles them."""
    if line.startswith("$ "):
        return [(character, "s1") for character in line]
    styled: list[Cell] = []
    classes = ""
    for index, part in enumerate(STYLE.split(line)):
        if index % 2:
            codes = [code for code in part.split(";") if code in ("1", "2", *COLOURS)]
            classes = " ".join(f"s{code}" for code in codes)
        else:
            styled += [(character, classes) for character in part]
    return styled


def broken(line: list[Cell]) -> Iterator[list[Cell]]:
    """The rows of a line on the terminal; a row after the first is indented as the first is."""
    indent = next((index for index, (character, _) in enumerate(line) if character != " "), 0)
    while len(line) > COLUMNS:
        end = max((index for index in range(indent + 1, COLUMNS + 1) if line[index][0] == " "), default=COLUMNS)
        yield line[:end]
        line = [*line[:indent], *line[end + (line[end][0] == " ") :]]
    yield line


def drawn(row: list[Cell], y: int) -> Iterator[str]:
    """One element for each style; its length is given, so that columns are straight in every font."""
    column = 0
    for classes, group in groupby(row, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in group)
        first, column = column, column + len(text)
        if shown := text.strip():
            first += len(text) - len(text.lstrip())
            of_class = f' class="{classes}"' if classes else ""
            x, length = MARGIN + first * CELL_WIDTH, len(shown) * CELL_WIDTH
            yield f'<text{of_class} x="{x:.1f}" y="{y}" textLength="{length:.1f}">{escape(shown, WIDE_GAPS)}</text>'
