"""`barnabas log dump --records` of `__consumer_offsets` says what its records mean."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from barnabas.base.ids import TopicPartition
from barnabas.cli import main
from barnabas.cli.log.dump_groups import group_fields
from barnabas.client.group.consumer_protocol import encode_assignment
from barnabas.groups.records import (
    CommittedOffset,
    GroupMetadata,
    MemberMetadata,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from barnabas.records.builder import BatchBuilder
from tests.support.group_records import GROUP_KEY, GROUP_VALUES, LEGACY_OFFSET_KEY, OFFSET_KEY, OFFSET_VALUES

NOW_MS = 1_700_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    members = (
        MemberMetadata(
            "m-1", None, "app\n", "/10.0.0.7", 60_000, 45_000, b"", encode_assignment([TopicPartition("orders", 3)])
        ),
    )
    batch = BatchBuilder()
    for key, value in (
        (encode_offset_key("billing", "orders", 3), encode_offset(CommittedOffset(42, 5, "so far", NOW_MS))),
        (encode_offset_key("billing", "orders", 4), None),
        (encode_group_key("billing"), encode_group(GroupMetadata("consumer", 7, "range", "m-1", NOW_MS, members))),
        (encode_group_key("old"), None),
        (b"\x00\x63nobody knows", b"value"),
        (b"\x00", b"too short"),
    ):
        batch.append(NOW_MS, key, value)
    path = tmp_path / "__consumer_offsets-7" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(batch.build())
    return path


def dump(path: Path, *options: str) -> list[str]:
    result = CliRunner().invoke(main.make_app(), ["log", "dump", "--records", *options, str(path)])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()[1:]


def test_records_of_groups_are_told_in_words(log: Path) -> None:
    time = "time=2023-11-14T22:13:20.000Z"
    assert dump(log) == [
        f'  record 0 {time} offset group="billing" topic="orders" partition=3 committed=42 leader_epoch=5 '
        'metadata="so far" commit_timestamp=2023-11-14T22:13:20.000Z',
        f'  record 1 {time} offset group="billing" topic="orders" partition=4 removed=true',
        f'  record 2 {time} group group="billing" protocol_type="consumer" generation=7 protocol="range" leader="m-1" '
        'members=[{member="m-1" instance=none client="app\\n" host="/10.0.0.7" session_timeout_ms=45000 '
        'rebalance_timeout_ms=60000 assignment=["orders-3"]}]',
        f'  record 3 {time} group group="old" removed=true',
        f'  record 4 {time} key="\\u0000cnobody knows" value="value"',
        f'  record 5 {time} key="\\u0000" value="too short"',
    ]


def test_records_of_groups_as_json_have_both_meaning_and_bytes(log: Path) -> None:
    lines = [json.loads(line) for line in dump(log, "--json")]
    assert lines[0]["decoded"]["committed"] == 42
    assert lines[2]["decoded"]["members"][0]["assignment"] == ["orders-3"]
    assert "key" in lines[0]
    assert "decoded" not in lines[4]


def test_records_of_another_topic_are_bytes(log: Path) -> None:
    other = log.parent.rename(log.parent.parent / "orders-7") / log.name
    assert all(" key=" in line for line in dump(other))


@pytest.mark.parametrize("version", OFFSET_VALUES)
@pytest.mark.parametrize("key", [OFFSET_KEY, LEGACY_OFFSET_KEY])
def test_every_offset_that_kafka_writes_is_read(key: bytes, version: str) -> None:
    fields = group_fields(key, OFFSET_VALUES[version])
    assert fields is not None
    assert (fields["kind"], fields["group"], fields["topic"], fields["partition"]) == ("offset", "grüppe", "orders", 7)


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_every_group_that_kafka_writes_is_read(version: int) -> None:
    fields = group_fields(GROUP_KEY, GROUP_VALUES[version])
    assert fields is not None
    assert (fields["group"], fields["protocol"]) == ("grüppe", "range")
    assert "assignment" not in fields["members"][0], "these bytes are none"
