"""A pipeline as a graph, and the graph as lines of text. Pure.

`barnabas.pipelines.drawing.graph_svg` draws the same nodes as a picture.
"""

from dataclasses import dataclass

from barnabas.pipelines.spec import Pipeline, Sink, Source, Step


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
    unused = unused_nodes(nodes)
    if unused:
        lines += ["", f"not used by any sink: {', '.join(node.title for node in unused)}"]
    lines += ["", "queries (name = consumer group):"]
    for sink in pipeline.sinks:
        streams = [name for name in pipeline.needed_for(sink) if pipeline.source(name) is not None]
        lines.append(f"  {pipeline.query_name(sink)}: {', '.join(streams)} → {sink.name} ({sink.kind}, {sink.mode})")
    return "\n".join(lines) + "\n"


def unused_nodes(nodes: list[Node]) -> list[Node]:
    """Sources and steps that nothing reads, apart from the dead letters."""
    read = {name for node in nodes if node.kind != "dead" for name in node.after}
    return [node for node in nodes if node.kind in ("source", "table", "step") and node.name not in read]


def _cut(text: str, letters_max: int) -> str:
    return text if len(text) <= letters_max else f"{text[: letters_max - 1]}…"


def duration_text(milliseconds: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"
