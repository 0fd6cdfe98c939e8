"""Fixtures that need Apache Kafka. Where it cannot be had, the tests that use them are skipped, never failed."""

from pathlib import Path

import pytest

from tests.support.kafka import KafkaUnavailable, kafka_jars
from tests.support.kafka_directory import KafkaDirectories, kafka_directories


@pytest.fixture(scope="session")
def kafka() -> Path:
    """The directory of Kafka's jars: ask for it before starting a node or running a tool."""
    try:
        return kafka_jars()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def kafka_directory(kafka: Path) -> KafkaDirectories:
    """What Kafka wrote, after a clean stop and after a kill; shared, so copy it before writing to it."""
    return kafka_directories()
