"""`barnabas topic delete-records`: what goes, what stays, and what is asked."""

import json
from collections.abc import Iterator
from itertools import count

import pytest

from barnabas.testing import Broker
from tests.support.command_line import run_line
from tests.support.terminal import Terminal

FIRST_MS = 1_700_000_000_000
NUMBERS = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    """Ten records in partition 0, a tenth of a second apart, four in partition 1."""
    name = f"orders-{next(NUMBERS)}"
    broker.create_topic(name, partitions=2, configs={"retention.ms": "-1"})
    for index, end in enumerate((10, 4)):
        for number in range(end):
            broker.append(name, [b"%d" % number], partition=index, timestamp_ms=FIRST_MS + number * 100)
    return name


def first_values(broker: Broker, topic: str) -> list[bytes | None]:
    """Of each partition, what a consumer meets first."""
    lines = run_line(f"barnabas consume {topic} --json", broker.bootstrap).splitlines()
    records = [json.loads(line) for line in lines]
    return [next((one["value"] for one in records if one["partition"] == index), None) for index in (0, 1)]


@pytest.mark.parametrize(
    ("options", "firsts", "deleted"),
    [
        ("--before 3", ["3", "3"], "6 records"),
        ("--before 6", ["6", None], "10 records"),
        ("--before -1", ["9", "3"], "12 records"),
        (f"--before @{FIRST_MS + 150}", ["2", "2"], "4 records"),
        ("--before '1 hour ago' --partition 1", ["0", None], "4 records"),
        ("--all", [None, None], "14 records"),
        ("--all -p 1", ["0", None], "4 records"),
        ("--before 1 -p 0", ["1", "0"], "1 record"),
    ],
)
def test_records_before_a_place_are_deleted(
    broker: Broker, topic: str, options: str, firsts: list[str | None], deleted: str
) -> None:
    planned = run_line(f"barnabas topic delete-records {topic} {options} --dry-run", broker.bootstrap)
    assert planned.splitlines()[-1] == f"would delete {deleted} of topic '{topic}'"
    assert first_values(broker, topic) == ["0", "0"]
    said = run_line(f"barnabas topic delete-records {topic} {options}", broker.bootstrap)
    assert said.splitlines()[-1] == f"deleted {deleted} of topic '{topic}'"
    assert first_values(broker, topic) == firsts
    again = run_line(f"barnabas topic delete-records {topic} {options}", broker.bootstrap)
    if "-1" not in options:
        assert again == f"topic '{topic}' has no records to delete\n"


def test_json_tells_each_partition(broker: Broker, topic: str) -> None:
    said = run_line(f"barnabas topic delete-records {topic} --before 6 --json", broker.bootstrap)
    assert [json.loads(line) for line in said.splitlines()] == [
        {"topic": topic, "partition": 0, "old_start": 0, "start": 6, "end": 10, "deleted": 6},
        {"topic": topic, "partition": 1, "old_start": 0, "start": 4, "end": 4, "deleted": 4},
    ]


def test_person_is_asked_and_may_refuse(broker: Broker, topic: str) -> None:
    with Terminal(broker.bootstrap, "topic", "delete-records", topic, "--all") as terminal:
        terminal.wait_for(f"Delete 14 records of {topic}? [y/N]: ")
        terminal.type("n\n")
        assert terminal.status() == 1
    assert terminal.seen.endswith("nothing deleted\n")
    assert first_values(broker, topic) == ["0", "0"]


def test_topic_that_is_only_compacted_keeps_its_records(broker: Broker) -> None:
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    broker.append("compacted", [b"x"], key=b"k")
    said = run_line("barnabas topic delete-records compacted --all", broker.bootstrap)
    assert said.splitlines()[-1].startswith("barnabas: topic 'compacted' is only compacted")
