"""docs/concepts.md stays true: its concepts, and the files, tests and commands that it names for each of them."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.unit.project.test_docs_examples import split, unknown

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "concepts.md"
CONCEPTS = [
    *("Record", "Topic", "Partition", "Offset", "Segment and index", "Retention and compaction"),
    *("Producer", "Acks", "Idempotent producer", "Consumer"),
    *("Leader", "Follower", "In-sync replicas (ISR)", "High watermark", "Leader epoch"),
    *("Consumer group", "Coordinator", "Rebalance", "Committed offset"),
    *("Broker", "Controller", "ZooKeeper"),
    "Delivery semantics",
]

FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`]+)`")
SECTION = re.compile(r"^### (?P<concept>.+)\n(?P<text>(?:(?!##).*\n)*)", re.MULTILINE)
FILE = re.compile(r"(?:src|tests|docs|examples)/\S+|[\w.-]+(?:/[\w.-]+)+\.(?:py|pyx|md)(?:::\S+)?")


def spans(text: str) -> list[str]:
    """What stands in backticks, with a line break in it as a space."""
    return [" ".join(span.split()) for span in SPAN.findall(FENCE.sub("", text))]


def files(text: str) -> list[str]:
    """The source and test files of a text, each with `::` and a test where it names one."""
    return [span for span in spans(text) if FILE.fullmatch(span)]


def commands(text: str) -> list[str]:
    return [span for span in spans(text) if span.startswith("barnabas ")]


@cache
def top_level_tests(path: Path) -> set[str]:
    """The tests that `pytest path::name` finds."""
    functions = ast.parse(path.read_text(encoding="utf-8")).body
    names = {one.name for one in functions if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in names if name.startswith("test_")}


def mistakes(text: str) -> list[str]:
    """Everything that a text names and that does not exist."""
    found = []
    for name in files(text):
        path, _, test = name.partition("::")
        if not (ROOT / path).exists() or ("::" in name and test not in top_level_tests(ROOT / path)):
            found.append(name)
    return found + [line for line in commands(text) if unknown(split(line)[1:])]


def test_page_names_only_what_exists() -> None:
    assert mistakes(PAGE.read_text(encoding="utf-8")) == []


def test_every_concept_has_its_heading() -> None:
    assert [section["concept"] for section in SECTION.finditer(PAGE.read_text(encoding="utf-8"))] == CONCEPTS


@pytest.mark.parametrize("concept", CONCEPTS)
def test_every_concept_has_code_a_command_and_a_test(concept: str) -> None:
    sections = {one["concept"]: one["text"] for one in SECTION.finditer(PAGE.read_text(encoding="utf-8"))}
    named = files(sections[concept])

    assert [name for name in named if name.startswith("src/barnabas/")]
    assert [name for name in named if "::test_" in name]
    assert commands(sections[concept])


@pytest.mark.parametrize(
    "name",
    [
        "src/barnabas/replication/nobody.py",
        "barnabas/replication/partition.py",
        "tests/unit/replication/test_nobody.py::test_nothing",
        "tests/unit/project/test_concepts.py::test_nothing",
        "tests/unit/project/test_concepts.py::mistakes",
        "tests/unit/project/test_concepts.py::",
        "barnabas topics list",
        "barnabas topic lists",
        "barnabas topic list --interna",
        "barnabas topic",
        "barnabas consume orders '",
    ],
)
def test_name_of_what_does_not_exist_is_a_mistake(name: str) -> None:
    right = "`src/barnabas/replication/partition.py`, `barnabas topic list --internal`"

    assert mistakes(f"See {right} and `{name}`.") == [name]
