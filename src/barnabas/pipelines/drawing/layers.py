"""Where the boxes of a graph stand and how its lines run, in columns from left to right. Pure.

Every edge leads to a column further right. One that passes columns in between has a slot in each of them, as a box has,
so no line runs over a box; edges of one lane share these slots. Slots are ordered by where their neighbours stand,
which leaves few crossings, then moved as near to their neighbours as the others allow, and last the lines are
straightened.

All of this is the usual heuristic for layered drawings (Sugiyama): neither the fewest crossings nor the shortest lines,
but the same for the same graph, and fast for thousands of edges.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Final

COLUMN_GAP: Final = 44
ROW_GAP: Final = 18
_PASSING_HEIGHT: Final = 2
_ORDERING_SWEEPS: Final = 4
_PLACING_SWEEPS: Final = 8
_STRAIGHTENING_SWEEPS: Final = 24


@dataclass(frozen=True, slots=True)
class Edge:
    """Edges of one lane run together for as long as they can; without a name, those from one start do."""

    start: str
    end: str
    lane: str = ""


@dataclass(frozen=True, slots=True)
class Extent:
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Place:
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Places by a box's name, and the points of each edge in the order in which the edges were given."""

    places: dict[str, Place]
    routes: list[tuple[tuple[int, int], ...]]


@dataclass(slots=True, eq=False)
class _Slot:
    """A box, or where edges pass a column.

    `rank`, from 0 to 1, is how far down the column it is, and `middle` a y. `line` has all slots of the same line, by
    their columns; a box has none.
    """

    height: int
    line: "dict[int, _Slot]" = field(default_factory=dict)
    rank: float = 0.0
    middle: float = 0.0
    before: "list[_Slot]" = field(default_factory=list)
    after: "list[_Slot]" = field(default_factory=list)


def lay_out(extents: Mapping[str, Extent], columns: Mapping[str, int], edges: Sequence[Edge]) -> Layout:
    """The boxes of a column are as wide as its widest; the highest place has y = 0."""
    stacks: list[list[_Slot]] = [[] for _ in range(max(columns.values(), default=-1) + 1)]
    boxes: dict[str, _Slot] = {}
    for name, extent in extents.items():
        boxes[name] = _Slot(extent.height)
        stacks[columns[name]].append(boxes[name])
    passed = _pass_columns(edges, columns, boxes, stacks)
    _order(stacks)
    _place(stacks)
    _straighten(stacks)
    top = min((slot.middle - slot.height / 2 for stack in stacks for slot in stack), default=0.0)

    widths = [0] * len(stacks)
    for name, extent in extents.items():
        widths[columns[name]] = max(widths[columns[name]], extent.width)
    lefts = [sum(widths[:column]) + column * COLUMN_GAP for column in range(len(widths))]
    places = {
        name: Place(
            lefts[columns[name]], round(slot.middle - slot.height / 2 - top), widths[columns[name]], slot.height
        )
        for name, slot in boxes.items()
    }
    routes = []
    for edge, slots in zip(edges, passed, strict=True):
        start, end = places[edge.start], places[edge.end]
        points = [(start.x + start.width, start.y + start.height // 2)]
        for column, slot in slots:
            y = round(slot.middle - top)
            points += [(lefts[column], y), (lefts[column] + widths[column], y)]
        routes.append((*points, (end.x, end.y + end.height // 2)))
    return Layout(places, routes)


def _pass_columns(
    edges: Sequence[Edge], columns: Mapping[str, int], boxes: Mapping[str, _Slot], stacks: list[list[_Slot]]
) -> list[list[tuple[int, _Slot]]]:
    """Joins the slots of each edge; the columns that it passes, with its slot in each."""
    shared: dict[tuple[str, str], dict[int, _Slot]] = {}
    passed = []
    for edge in edges:
        assert columns[edge.start] < columns[edge.end], f"{edge.start} → {edge.end} does not lead to the right"
        line = shared.setdefault(("lane", edge.lane) if edge.lane else ("start", edge.start), {})
        last = boxes[edge.start]
        slots = []
        for column in range(columns[edge.start] + 1, columns[edge.end]):
            if column not in line:
                line[column] = _Slot(_PASSING_HEIGHT, line)
                stacks[column].append(line[column])
            _join(last, line[column])
            last = line[column]
            slots.append((column, last))
        _join(last, boxes[edge.end])
        passed.append(slots)
    return passed


def _join(before: _Slot, after: _Slot) -> None:
    if after not in before.after:
        before.after.append(after)
        after.before.append(before)


def _order(stacks: list[list[_Slot]]) -> None:
    for stack in stacks:
        _rank(stack)
    for _ in range(_ORDERING_SWEEPS):
        for stack in stacks:
            stack.sort(key=lambda slot: _mean([near.rank for near in slot.before], slot.rank))
            _rank(stack)
        for stack in reversed(stacks):
            stack.sort(key=lambda slot: _mean([near.rank for near in slot.after], slot.rank))
            _rank(stack)


def _rank(stack: list[_Slot]) -> None:
    for number, slot in enumerate(stack):
        slot.rank = (number + 0.5) / len(stack)


def _place(stacks: list[list[_Slot]]) -> None:
    for stack in stacks:
        _settle(stack, [0.0] * len(stack))
    for _ in range(_PLACING_SWEEPS):
        for stack in stacks:
            _settle(stack, [_mean([near.middle for near in slot.before], slot.middle) for slot in stack])
        for stack in reversed(stacks):
            _settle(stack, [_mean([near.middle for near in slot.before + slot.after], slot.middle) for slot in stack])


def _straighten(stacks: list[list[_Slot]]) -> None:
    """A line goes to its own mean, until nothing in its columns pushes it away; boxes to what they follow."""
    for _ in range(_STRAIGHTENING_SWEEPS):
        means: dict[int, float] = {}
        for stack in stacks:
            wanted = []
            for slot in stack:
                if not slot.line:
                    wanted.append(_mean([near.middle for near in slot.before], slot.middle))
                    continue
                line = id(slot.line)
                if line not in means:
                    means[line] = _mean([one.middle for one in slot.line.values()], slot.middle)
                wanted.append(means[line])
            _settle(stack, wanted)


def _settle(stack: list[_Slot], wanted: Iterable[float]) -> None:
    """Middles as near as possible to those wanted, by the squares of the distances, in the stack's order and apart.

    Without the heights and gaps this is isotonic regression: neighbours that want to pass each other get the mean of
    what they want, and move as one block from then on.
    """
    offsets = []
    offset = 0.0
    for number, slot in enumerate(stack):
        if number:
            offset += stack[number - 1].height / 2 + ROW_GAP + slot.height / 2
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        total, count = want - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            before_total, before_count = blocks.pop()
            total, count = total + before_total, count + before_count
        blocks.append((total, count))
    means = [total / count for total, count in blocks for _ in range(count)]
    for slot, mean, offset in zip(stack, means, offsets, strict=True):
        slot.middle = mean + offset


def _mean(values: Sequence[float], otherwise: float) -> float:
    # `sum` rounds in another way from Python 3.12 on, and a picture must not.
    return fsum(values) / len(values) if values else otherwise
