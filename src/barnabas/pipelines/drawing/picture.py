"""Pictures as SVG text: boxes with lines of text, and arrows. Pure.

A picture is one file that loads nothing: no fonts, scripts or links. It has a background of its own and follows
`prefers-color-scheme`, so it can be read in light and in dark mode, whatever page shows it. Text is monospaced, so its
width is known without a font. The same picture always gives the same text.

Text may come from strangers: markup is escaped, and what XML or a reader's eye cannot take (control characters,
surrogates, marks that reverse the direction of writing) is shown as `�`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from unicodedata import combining, east_asian_width
from xml.sax.saxutils import escape

TITLE_SIZE: Final = 13
DETAIL_SIZE: Final = 11
MARGIN: Final = 20
HEADING_HEIGHT: Final = 34
_PADDING: Final = 10
_DETAIL_HEIGHT: Final = 15
_CAPTION_GAP: Final = 16
_HINT_CELLS_MAX: Final = 1_000

_FONTS: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_CELL_PERCENT: Final = 61
"""The width of a character in these fonts, in percent of the font's size, rounded up."""


@dataclass(frozen=True, slots=True)
class _Mode:
    """The colours of light or dark mode; `boxes` has fill and border."""

    paper: str
    text: str
    faint_text: str
    line: str
    failure: str
    boxes: dict[str, tuple[str, str]]


_LIGHT: Final = _Mode(
    paper="#ffffff",
    text="#1f2328",
    faint_text="#4d5560",
    line="#6e7781",
    failure="#c0362c",
    boxes={
        "blue": ("#ddebff", "#5a8fd0"),
        "violet": ("#e9e2ff", "#8d78cc"),
        "yellow": ("#fff3d1", "#c29a3a"),
        "green": ("#dbf3df", "#57a068"),
        "red": ("#ffdfdc", "#cf6a61"),
        "grey": ("#eef0f3", "#9aa2ab"),
    },
)
_DARK: Final = _Mode(
    paper="#0d1117",
    text="#e6edf3",
    faint_text="#b3bdc8",
    line="#8b949e",
    failure="#ff7b72",
    boxes={
        "blue": ("#12294a", "#4a7ab8"),
        "violet": ("#2b2250", "#7c69b8"),
        "yellow": ("#3a2f10", "#96782c"),
        "green": ("#12341d", "#3f8450"),
        "red": ("#481c1a", "#b3554d"),
        "grey": ("#21262d", "#6e7681"),
    },
)
COLOURS: Final = tuple(_LIGHT.boxes)


@dataclass(frozen=True, slots=True)
class Label:
    """`caption` stands at the right of the title. `hint` is shown when the pointer rests on the box."""

    colour: str
    title: str
    caption: str
    details: tuple[str, ...]
    hint: str

    @property
    def width(self) -> int:
        """Of the narrowest box with room for the text."""
        first_line = _text_width(self.title, TITLE_SIZE)
        if self.caption:
            first_line += _CAPTION_GAP + _text_width(self.caption, DETAIL_SIZE)
        return 2 * _PADDING + max([first_line, *(_text_width(line, DETAIL_SIZE) for line in self.details)])

    @property
    def height(self) -> int:
        return 2 * _PADDING + TITLE_SIZE + _DETAIL_HEIGHT * len(self.details)


@dataclass(frozen=True, slots=True)
class Box:
    x: int
    y: int
    width: int
    height: int
    label: Label


@dataclass(frozen=True, slots=True)
class Arrow:
    """A line through `points`, bent where two of them share neither x nor y; one for failures is red and dashed."""

    points: tuple[tuple[int, int], ...]
    hint: str
    is_for_failures: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    heading: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def shown(text: str, cells_max: int | None = None) -> str:
    """The text on one line, safe to show, and cut to `cells_max`."""
    line = "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split()))
    if cells_max is None or cells(line) <= cells_max:
        return line
    return f"{line[: _letters_in(line, cells_max - 1)].rstrip()}…"


def wrapped(text: str, cells_max: int, lines_max: int) -> list[str]:
    """The text on a few lines, broken between words where that is possible; the last one is cut if there is more."""
    rest = shown(text)
    lines: list[str] = []
    while len(lines) < lines_max - 1 and cells(rest) > cells_max:
        length = _letters_in(rest, cells_max)
        space = rest.rfind(" ", 0, length + 1)
        end = space if space > 0 else length
        lines.append(rest[:end])
        rest = rest[end:].lstrip()
    return [*lines, shown(rest, cells_max)]


def _letters_in(text: str, cells_max: int) -> int:
    """How many letters of a text fit."""
    room = cells_max
    for number, letter in enumerate(text):
        room -= cells(letter)
        if room < 0:
            return number
    return len(text)


def cells(text: str) -> int:
    """How many characters of a monospaced font a text is wide."""
    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _text_width(text: str, size: int) -> int:
    return -(-cells(shown(text)) * size * _CELL_PERCENT // 100)


def svg_text(picture: Picture) -> str:
    """Arrows are below boxes: where they meet, the text stays readable."""
    right = max((box.x + box.width for box in picture.boxes), default=0)
    bottom = max((box.y + box.height for box in picture.boxes), default=0)
    points = [point for arrow in picture.arrows for point in arrow.points]
    width = MARGIN + max([right, MARGIN + _text_width(picture.heading, TITLE_SIZE), *(x for x, _ in points)])
    height = MARGIN + max([bottom, HEADING_HEIGHT, *(y for _, y in points)])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' role="img">',
        f"<title>{_hint(picture.heading)}</title>",
        "<style>",
        *_style(),
        "</style>",
        "<defs>",
        _head("head", "head"),
        _head("failure-head", "failure head"),
        "</defs>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        _text("title", MARGIN, MARGIN + 8, picture.heading),
        *(_arrow(arrow) for arrow in picture.arrows),
        *(line for box in picture.boxes for line in _box(box)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _style() -> Iterator[str]:
    yield f"text {{ font-family: {_FONTS}; white-space: pre }}"
    yield f".title {{ font-size: {TITLE_SIZE}px; font-weight: bold }}"
    yield f".detail, .caption {{ font-size: {DETAIL_SIZE}px }}"
    yield ".caption { text-anchor: end }"
    yield ".arrow { fill: none; stroke-width: 1.3 }"
    yield ".failure.arrow { stroke-dasharray: 5 3 }"
    yield from _colours(_LIGHT)
    yield "@media (prefers-color-scheme: dark) {"
    yield from _colours(_DARK)
    yield "}"


def _colours(mode: _Mode) -> Iterator[str]:
    yield f".paper {{ fill: {mode.paper} }}"
    yield f".title {{ fill: {mode.text} }}"
    yield f".detail, .caption {{ fill: {mode.faint_text} }}"
    yield f".arrow {{ stroke: {mode.line} }}"
    yield f".head {{ fill: {mode.line} }}"
    yield f".failure.arrow {{ stroke: {mode.failure} }}"
    yield f".failure.head {{ fill: {mode.failure} }}"
    for colour, (fill, border) in mode.boxes.items():
        yield f".{colour} {{ fill: {fill}; stroke: {border} }}"


def _head(name: str, style: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" markerWidth="8" markerHeight="8" refX="8" refY="4" orient="auto"'
        f' markerUnits="userSpaceOnUse"><path class="{style}" d="M0,0 L8,4 L0,8 z"/></marker>'
    )


def _arrow(arrow: Arrow) -> str:
    style, head = ("failure arrow", "failure-head") if arrow.is_for_failures else ("arrow", "head")
    return (
        f'<path class="{style}" d="{_path(arrow.points)}" marker-end="url(#{head})">'
        f"<title>{_hint(arrow.hint)}</title></path>"
    )


def _path(points: Sequence[tuple[int, int]]) -> str:
    x, y = points[0]
    parts = [f"M{x},{y}"]
    for next_x, next_y in points[1:]:
        middle = (x + next_x) // 2
        is_straight = next_x == x or next_y == y
        parts.append("L" if is_straight else f"C{middle},{y} {middle},{next_y} ")
        parts[-1] += f"{next_x},{next_y}"
        x, y = next_x, next_y
    return " ".join(parts)


def _box(box: Box) -> Iterator[str]:
    label = box.label
    left, baseline = box.x + _PADDING, box.y + _PADDING + TITLE_SIZE - 3
    yield f"<g><title>{_hint(label.hint)}</title>"
    yield f'<rect class="{label.colour}" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6"/>'
    yield _text("title", left, baseline, label.title)
    if label.caption:
        yield _text("caption", box.x + box.width - _PADDING, baseline, label.caption)
    for number, line in enumerate(label.details, start=1):
        yield _text("detail", left, baseline + number * _DETAIL_HEIGHT + 1, line)
    yield "</g>"


def _text(style: str, x: int, y: int, text: str) -> str:
    return f'<text class="{style}" x="{x}" y="{y}">{escape(shown(text))}</text>'


def _hint(text: str) -> str:
    return escape(shown(text, _HINT_CELLS_MAX))
