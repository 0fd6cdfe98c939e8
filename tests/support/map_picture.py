"""Pictures of boxes on a grid, drawn from a TOML file in `docs/pictures`; its own comment says how it is written.

A wrong source is an AssertionError that names the box or arrow: whoever changed the file runs this, and nobody else.
"""

import tomllib
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from barnabas.pipelines.drawing.picture import COLOURS, HEADING_HEIGHT, MARGIN, Arrow, Box, Label, Picture, svg_text

COLUMN_GAP = 26
ROW_GAP = 24
EMPTY = "."


@dataclass(frozen=True, slots=True)
class Area:
    """The cells of a box; the last row and column belong to it."""

    top: int
    left: int
    bottom: int
    right: int


def picture_of(source: str) -> str:
    """The SVG text of a picture."""
    written = tomllib.loads(source)
    areas = read_map(written["map"])
    labels = {name: read_label(entry) for name, entry in written["boxes"].items()}
    assert sorted(areas) == sorted(labels), f"only on the map or only a box: {sorted(set(areas) ^ set(labels))}"
    widths = sizes(
        {name: (area.left, area.right, labels[name].width) for name, area in areas.items()}, COLUMN_GAP, is_even=True
    )
    heights = sizes(
        {name: (area.top, area.bottom, labels[name].height) for name, area in areas.items()}, ROW_GAP, is_even=False
    )
    xs = starts(widths, MARGIN, COLUMN_GAP)
    ys = starts(heights, MARGIN + HEADING_HEIGHT, ROW_GAP)
    boxes = {
        name: Box(
            xs[area.left],
            ys[area.top],
            xs[area.right] + widths[area.right] - xs[area.left],
            ys[area.bottom] + heights[area.bottom] - ys[area.top],
            labels[name],
        )
        for name, area in areas.items()
    }
    arrows = [read_arrow(text, boxes) for text in written["arrows"]]
    return svg_text(Picture(written["heading"], tuple(boxes.values()), tuple(arrows)))


def read_map(text: str) -> dict[str, Area]:
    rows = [line.split() for line in text.strip().splitlines()]
    assert len({len(row) for row in rows}) == 1, "every line of the map has the same number of words"
    cells: dict[str, list[tuple[int, int]]] = {}
    for row_number, row in enumerate(rows):
        for column_number, name in enumerate(row):
            if name != EMPTY:
                cells.setdefault(name, []).append((row_number, column_number))
    areas = {name: Area(*min(found), *max(found)) for name, found in cells.items()}
    for name, area in areas.items():
        whole = (area.bottom - area.top + 1) * (area.right - area.left + 1)
        assert area.left <= area.right, f"'{name}' is no rectangle"
        assert len(cells[name]) == whole, f"'{name}' is no rectangle"
    return areas


def read_label(entry: dict[str, Any]) -> Label:
    assert entry["colour"] in COLOURS, f"'{entry['title']}' has the colour {entry['colour']}"
    details = tuple(entry["details"])
    return Label(
        entry["colour"], entry["title"], entry.get("caption", ""), details, f"{entry['title']}: {' '.join(details)}"
    )


def read_arrow(text: str, boxes: dict[str, Box]) -> Arrow:
    """Across the gap between two boxes, in the middle of the side that they share."""
    start_name, end_name = text.split(" > ")
    start, end = boxes[start_name], boxes[end_name]
    hint = f"{start.label.title} → {end.label.title}"
    left, right = max(start.x, end.x), min(start.x + start.width, end.x + end.width)
    top, bottom = max(start.y, end.y), min(start.y + start.height, end.y + end.height)
    if left < right:
        middle = (left + right) // 2
        ys = (start.y + start.height, end.y) if start.y < end.y else (start.y, end.y + end.height)
        return Arrow(((middle, ys[0]), (middle, ys[1])), hint)
    assert top < bottom, f"'{text}': neither beside, above nor below"
    middle = (top + bottom) // 2
    xs = (start.x + start.width, end.x) if start.x < end.x else (start.x, end.x + end.width)
    return Arrow(((xs[0], middle), (xs[1], middle)), hint)


def sizes(spans: dict[str, tuple[int, int, int]], gap: int, *, is_even: bool) -> list[int]:
    """The width of each column, or the height of each row: large enough for every span of (first, last, size)."""
    found = [0] * (1 + max(last for _, last, _ in spans.values()))
    for first, last, size in sorted(spans.values(), key=lambda span: span[1] - span[0]):
        count = last - first + 1
        missing = size - gap * (count - 1) - sum(found[first : last + 1])
        for number in range(first, last + 1):
            found[number] += max(0, -(-missing // count))
    return [max(found)] * len(found) if is_even else found


def starts(lengths: list[int], margin: int, gap: int) -> list[int]:
    """Where each column or row begins."""
    return list(accumulate((length + gap for length in lengths[:-1]), initial=margin))
