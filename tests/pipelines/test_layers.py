"""The layout of graphs in columns."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipelines.drawing.layers import ROW_GAP, Edge, Extent, Layout, lay_out


def chain(*names: str) -> list[Edge]:
    return [Edge(start, end) for start, end in pairwise(names)]


def test_chain_is_a_straight_line() -> None:
    layout = lay_out(dict.fromkeys("abc", Extent(50, 40)), {"a": 0, "b": 1, "c": 2}, chain("a", "b", "c"))
    assert {place.y for place in layout.places.values()} == {0}
    assert all(start[1] == end[1] for start, end in layout.routes)


def test_boxes_of_a_column_are_as_wide_as_its_widest() -> None:
    extents = {"a": Extent(50, 40), "b": Extent(90, 40), "c": Extent(30, 40)}
    layout = lay_out(extents, {"a": 0, "b": 0, "c": 1}, [Edge("a", "c"), Edge("b", "c")])
    assert [place.width for place in layout.places.values()] == [90, 90, 30]


def test_edges_that_would_cross_do_not() -> None:
    columns = {"a": 0, "b": 0, "c": 1, "d": 1}
    layout = lay_out(dict.fromkeys("abcd", Extent(50, 40)), columns, [Edge("a", "d"), Edge("b", "c")])
    places = layout.places
    assert (places["a"].y < places["b"].y) == (places["d"].y < places["c"].y)


def test_edge_that_passes_a_column_runs_beside_its_boxes() -> None:
    layout = lay_out(
        dict.fromkeys("abc", Extent(50, 40)), {"a": 0, "b": 1, "c": 2}, [*chain("a", "b", "c"), Edge("a", "c")]
    )
    passing, box = layout.routes[-1][1], layout.places["b"]
    assert passing[0] == box.x
    assert not box.y - ROW_GAP / 2 < passing[1] < box.y + box.height + ROW_GAP / 2


def test_edges_of_one_lane_pass_a_column_together() -> None:
    columns = {"a": 0, "b": 0, "c": 1, "d": 2}
    edges = [Edge("a", "d", "failures"), Edge("b", "d", "failures"), Edge("a", "c")]
    first, second, _ = lay_out(dict.fromkeys("abcd", Extent(50, 40)), columns, edges).routes
    assert first[1:] == second[1:]


def test_graph_without_boxes_has_no_places() -> None:
    assert lay_out({}, {}, []) == Layout({}, [])


@given(st.data())
def test_no_box_and_no_line_covers_a_box(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12), "boxes")
    names = [f"b{number}" for number in range(count)]
    columns = {name: data.draw(st.integers(0, 4), f"column of {name}") for name in names}
    extents = {name: Extent(data.draw(st.integers(20, 90)), 2 * data.draw(st.integers(10, 40))) for name in names}
    pairs = [(start, end) for start in names for end in names if columns[start] < columns[end]]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    layout = lay_out(extents, columns, [Edge(start, end) for start, end in chosen])

    boxes = list(layout.places.values())
    assert min(place.y for place in boxes) >= 0
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            apart = one.y + one.height < other.y or other.y + other.height < one.y
            assert one.x != other.x or apart
    for route in layout.routes:
        for x, y in route[1:-1]:
            assert not any(box.x <= x <= box.x + box.width and box.y <= y <= box.y + box.height for box in boxes)
