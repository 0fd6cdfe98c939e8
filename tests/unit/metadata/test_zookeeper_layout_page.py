"""docs/zookeeper-layout.md stays true: it names every path, and its examples are what our classes read and write."""

import re
from pathlib import Path

import pytest

from tests.support.kafka_nodes import content
from tests.support.znode_classes import LEFT_OUT, OURS, SERVED, NodeKind, kind_of

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "zookeeper-layout.md").read_text(encoding="utf-8")
EXAMPLES = [(path, data.strip().encode()) for path, data in re.findall(r"```text\n(/.*)\n((?s:.*?))```", PAGE)]
KINDS = [*SERVED, *OURS]


def section(title: str) -> str:
    return re.split(r"\n##+ ", PAGE.partition(f"## {title}\n")[2])[0]


def first_cells(text: str) -> list[str]:
    """The code in the first column of a table."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [path for row in rows for path in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize(("path", "data"), EXAMPLES, ids=[path for path, _ in EXAMPLES])
def test_example_is_read_and_written_the_same(path: str, data: bytes) -> None:
    kind = kind_of(path, KINDS)
    assert kind is not None
    assert content(kind.read_and_write(path, data)) == content(data)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.form)
def test_every_kind_of_node_has_a_row_and_an_example(kind: NodeKind) -> None:
    assert kind.form in first_cells(section("Every path"))
    assert any(kind.matches(path) for path, _ in EXAMPLES)


def test_the_table_has_no_other_paths() -> None:
    forms = {kind.form for kind in KINDS} | {"/config/brokers/<default>"}

    assert set(first_cells(section("Every path"))) == forms


def test_what_is_left_out_is_named() -> None:
    named = first_cells(section("What Kafka has and Barnabas leaves out"))

    assert [kind.form for kind in LEFT_OUT if kind.form not in named] == []


def test_every_addition_has_a_row() -> None:
    state = {"isr_epochs", "elr", "elr_epochs", "min_insync_replicas", "offline", "offline_epochs"}
    registration = {"previous_epoch", "intact_since", "directory_ids"}

    assert set(first_cells(section("What the additions mean"))) == state | registration
