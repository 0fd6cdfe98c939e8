"""The examples of docs/commands.md are as true of Apache Kafka, but for the words of one error message."""

import re
from pathlib import Path

import pytest

from tests.support.kafka import KafkaNode
from tests.unit.project.test_docs_commands import PAGE, fill_examples, without_what_changes

KAFKA_ONLY = [
    # Kafka has set this one by itself since 4.0, for all brokers.
    re.compile(r"^min\.insync\.replicas .*\n", re.MULTILINE),
]
OWN_WORDS = re.compile(r"(?<=topic 'orders': ).*soon.*(?= \(INVALID_CONFIG\))")


@pytest.mark.kafka
def test_examples_in_commands_page_hold_for_kafka(kafka: Path, tmp_path: Path) -> None:
    page = PAGE.read_text()
    with KafkaNode(tmp_path / "kafka") as node:
        filled = fill_examples(page, node.bootstrap_servers)

    for pattern in KAFKA_ONLY:
        filled = pattern.sub("", filled)
    assert without_what_changes(OWN_WORDS.sub("", filled)) == without_what_changes(OWN_WORDS.sub("", page))
