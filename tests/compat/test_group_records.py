"""The records of `__consumer_offsets` that our codecs are tested with are what Kafka's own classes write."""

import pytest

from tests.support.group_records import (
    EMPTY_GROUP_VALUES,
    GROUP_KEY,
    GROUP_VALUES,
    OFFSET_KEY,
    OFFSET_VALUES,
    TOPIC_ID_TEXT,
)
from tests.support.kafka import JAVA_SOURCES, KafkaUnavailable, java_command, run_command


@pytest.mark.kafka
def test_group_records_of_kafkas_classes_are_the_bytes_of_our_tests() -> None:
    try:
        status, output = run_command(java_command(str(JAVA_SOURCES / "GroupRecords.java"), TOPIC_ID_TEXT))
    except KafkaUnavailable as missing:
        pytest.skip(str(missing))
    assert status == 0, output
    rows = dict(line.split("\t") for line in output.splitlines() if "\t" in line)
    expected = {"offset key": OFFSET_KEY, "group key": GROUP_KEY}
    expected |= {f"offset {name}": value for name, value in OFFSET_VALUES.items()}
    expected |= {f"group {version}": value for version, value in GROUP_VALUES.items()}
    expected |= {f"empty group {version}": value for version, value in EMPTY_GROUP_VALUES.items()}
    assert {name: bytes.fromhex(text) for name, text in rows.items()} == expected
