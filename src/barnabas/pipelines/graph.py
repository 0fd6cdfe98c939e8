"""A pipeline as a graph for people: lines of text, or an SVG picture. Pure.

Nodes are in columns by how many steps they are from the sources; every edge goes from left to right.
"""

from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from barnabas.pipelines.spec import Pipeline, Sink, Source, Step

_WIDTH: Final = 220
_HEIGHT: Final = 46
_GAP_X: Final = 60
_GAP_Y: Final = 18
_MARGIN: Final = 20
_FILLS: Final = {"source": "#d7e8ff", "table": "#e4dcff", "step": "#fff3d1", "sink": "#d9f2dc", "dead": "#ffd9d6"}
_TITLE_LETTERS_MAX: Final = 26
_DETAIL_LETTERS_MAX: Final = 34


@dataclass(frozen=True, slots=True)
class Node:
    """`after` has the names of the nodes before it."""

    name: str
    kind: str
    title: str
    detail: str
    after: tuple[str, ...]


def nodes_of(pipeline: Pipeline) -> list[Node]:
    """Sources, steps, sinks and the dead-letter topic, each after what it needs."""
    nodes = [_source(source) for source in pipeline.sources]
    nodes += [_step(step) for step in pipeline.steps]
    nodes += [_sink(sink) for sink in pipeline.sinks]
    failing = tuple(source.name for source in pipeline.sources if source.on_error == "dead_letter")
    if pipeline.dead_letter is not None and failing:
        detail = f"topic {pipeline.dead_letter}"
        nodes.append(Node("dead letters/sink", "dead", "dead letters", detail, failing))
    return nodes


def _source(source: Source) -> Node:
    where = f"topics {source.pattern}" if source.pattern is not None else f"topic {', '.join(source.topics)}"
    kind = "table" if source.is_table else "source"
    watermark = "" if source.watermark_ms is None else f", late by {duration_text(source.watermark_ms)}"
    refresh = f", at most {duration_text(source.refresh_ms)} old" if source.is_table else ""
    return Node(source.name, kind, source.name, f"{where}, {source.format}{watermark}{refresh}", ())


def _step(step: Step) -> Node:
    detail = " ".join(step.code.split()) if step.kind == "sql" else step.code
    return Node(step.name, "step", step.name, f"{step.kind}: {detail}", step.inputs)


def _sink(sink: Sink) -> Node:
    detail = f"{sink.kind} {sink.target}".strip()
    if sink.mode != "append":
        detail += f", {sink.mode}"
    return Node(f"{sink.name}/sink", "sink", sink.name, detail, (sink.input,))


def graph_text(pipeline: Pipeline) -> str:
    """Each node with what it reads, in the order of the file."""
    lines = [f"{pipeline.name} on {pipeline.bootstrap}", ""]
    nodes = nodes_of(pipeline)
    width = max(len(node.title) for node in nodes)
    titles = {node.name: node.title for node in nodes}
    marks = {"source": "▷", "table": "▤", "step": "◇", "sink": "▶", "dead": "✗"}
    for node in nodes:
        lines.append(f"{marks[node.kind]} {node.title.ljust(width)}  {_cut(node.detail, 80)}")
        lines += [f"  {'└─' if one == node.after[-1] else '├─'} {titles[one]}" for one in node.after]
    unused = [node.title for node in nodes if node.kind in ("source", "table", "step") and not _is_used(node, nodes)]
    if unused:
        lines += ["", f"not used by any sink: {', '.join(unused)}"]
    lines += ["", "queries (name = consumer group):"]
    for sink in pipeline.sinks:
        streams = [name for name in pipeline.needed_for(sink) if pipeline.source(name) is not None]
        lines.append(f"  {pipeline.query_name(sink)}: {', '.join(streams)} → {sink.name} ({sink.kind}, {sink.mode})")
    return "\n".join(lines) + "\n"


def _is_used(node: Node, nodes: list[Node]) -> bool:
    return any(node.name in other.after and (other.kind != "dead") for other in nodes)


def graph_svg(pipeline: Pipeline) -> str:
    """A picture without anything from elsewhere, to be opened in a browser."""
    nodes = nodes_of(pipeline)
    places = _places(nodes)
    width = max(x for x, _ in places.values()) + _WIDTH + _MARGIN
    height = max(y for _, y in places.values()) + _HEIGHT + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif">',
        f"<title>{escape(pipeline.name)}</title>",
        '<defs><marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#666"/></marker></defs>',
    ]
    for node in nodes:
        for before in node.after:
            parts.append(_edge(places[before], places[node.name], is_dead=node.kind == "dead"))
    parts += [_box(node, places[node.name]) for node in nodes]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _places(nodes: list[Node]) -> dict[str, tuple[int, int]]:
    columns: dict[str, int] = {}
    for node in nodes:
        columns[node.name] = 1 + max((columns[before] for before in node.after), default=-1)
    last = max(columns.values())
    heights: dict[int, int] = {}
    places = {}
    for node in nodes:
        column = last if node.kind in ("sink", "dead") else columns[node.name]
        row = heights.get(column, 0)
        heights[column] = row + 1
        places[node.name] = (_MARGIN + column * (_WIDTH + _GAP_X), _MARGIN + row * (_HEIGHT + _GAP_Y))
    return places


def _edge(start: tuple[int, int], end: tuple[int, int], *, is_dead: bool) -> str:
    x1, y1 = start[0] + _WIDTH, start[1] + _HEIGHT // 2
    x2, y2 = end[0] - 2, end[1] + _HEIGHT // 2
    middle = (x1 + x2) // 2
    style = 'stroke="#c44" stroke-dasharray="4 3"' if is_dead else 'stroke="#666"'
    return f'<path d="M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}" fill="none" {style} marker-end="url(#end)"/>'


def _box(node: Node, place: tuple[int, int]) -> str:
    x, y = place
    return (
        f'<g><title>{escape(node.detail)}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"'
        f' fill="{_FILLS[node.kind]}" stroke="#555"/>'
        f'<text x="{x + 10}" y="{y + 19}" font-size="14" font-weight="bold">'
        f"{escape(_cut(node.title, _TITLE_LETTERS_MAX))}</text>"
        f'<text x="{x + 10}" y="{y + 36}" font-size="11" fill="#444">'
        f"{escape(_cut(node.detail, _DETAIL_LETTERS_MAX))}</text></g>"
    )


def _cut(text: str, letters_max: int) -> str:
    return text if len(text) <= letters_max else f"{text[: letters_max - 1]}…"


def duration_text(milliseconds: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"
