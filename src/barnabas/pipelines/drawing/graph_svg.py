"""The graph of a pipeline as an SVG picture, from the same nodes as the text of `graph`. Pure.

Sources are at the left, sinks and dead letters at the right, steps between them. A step that reads nothing (a constant
table) stands just before the first one that reads it.
"""

from typing import Final

from barnabas.pipelines.drawing.graph import Node, nodes_of, unused_nodes
from barnabas.pipelines.drawing.layers import Edge, Extent, lay_out
from barnabas.pipelines.drawing.picture import (
    HEADING_HEIGHT,
    MARGIN,
    Arrow,
    Box,
    Label,
    Picture,
    shown,
    svg_text,
    wrapped,
)
from barnabas.pipelines.spec import Pipeline

_COLOURS: Final = {"source": "blue", "table": "violet", "step": "yellow", "sink": "green", "dead": "red"}
_HEADING_CELLS_MAX: Final = 100
_TITLE_CELLS_MAX: Final = 40
_DETAIL_CELLS_MAX: Final = 27
_DETAIL_LINES_MAX: Final = 2


def graph_svg(pipeline: Pipeline) -> str:
    nodes = nodes_of(pipeline)
    by_name = {node.name: node for node in nodes}
    labels = _labels(pipeline, nodes)
    edges = [
        Edge(before, node.name, lane="failures" if node.kind == "dead" else "")
        for node in nodes
        for before in node.after
    ]
    layout = lay_out(
        {name: Extent(label.width, label.height) for name, label in labels.items()}, _columns(nodes), edges
    )

    def moved(x: int, y: int) -> tuple[int, int]:
        return x + MARGIN, y + MARGIN + HEADING_HEIGHT

    boxes = tuple(
        Box(*moved(place.x, place.y), place.width, place.height, labels[name]) for name, place in layout.places.items()
    )
    arrows = tuple(
        Arrow(
            tuple(moved(x, y) for x, y in route),
            f"{_kind_and_title(by_name[edge.start])} → {_kind_and_title(by_name[edge.end])}",
            is_for_failures=by_name[edge.end].kind == "dead",
        )
        for edge, route in zip(edges, layout.routes, strict=True)
    )
    return svg_text(Picture(shown(f"{pipeline.name} on {pipeline.bootstrap}", _HEADING_CELLS_MAX), boxes, arrows))


def _labels(pipeline: Pipeline, nodes: list[Node]) -> dict[str, Label]:
    """By the nodes' names. A sink also has the name of its query, which is its consumer group."""
    unused = {node.name for node in unused_nodes(nodes)}
    queries = {f"{sink.name}/sink": f"query {pipeline.query_name(sink)}" for sink in pipeline.sinks}
    labels = {}
    for node in nodes:
        caption = "" if node.kind == "dead" else f"unused {node.kind}" if node.name in unused else node.kind
        query = queries.get(node.name)
        details = wrapped(node.detail, _DETAIL_CELLS_MAX, _DETAIL_LINES_MAX)
        if query is not None:
            details.append(shown(query, _TITLE_CELLS_MAX))
        labels[node.name] = Label(
            _COLOURS[node.kind],
            shown(node.title, _TITLE_CELLS_MAX),
            caption,
            tuple(details),
            hint=f"{_kind_and_title(node)}: {node.detail}{'' if query is None else f', {query}'}",
        )
    return labels


def _kind_and_title(node: Node) -> str:
    return node.title if node.kind == "dead" else f"{node.kind} {node.title}"


def _columns(nodes: list[Node]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for node in nodes:
        columns[node.name] = 1 + max((columns[before] for before in node.after), default=-1)
    ends = [node.name for node in nodes if node.kind in ("sink", "dead")]
    last = 1 + max(column for name, column in columns.items() if name not in ends)
    columns.update(dict.fromkeys(ends, last))
    for node in nodes:
        if node.kind == "step" and not node.after:
            readers = [columns[other.name] for other in nodes if node.name in other.after]
            columns[node.name] = min(readers, default=1) - 1
    return columns
