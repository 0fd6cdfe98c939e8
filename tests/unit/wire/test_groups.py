"""Heartbeat and OffsetCommit by hand, held equal to the codec that is built from kio's classes."""

from typing import Any
from uuid import UUID

import pytest

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.commit import NO_RETENTION, CommitResult, decode_commit, encode_committed
from barnabas.wire.errors import ErrorCode, MalformedRequest
from barnabas.wire.heartbeat import decode_heartbeat_request, encode_heartbeat_response
from barnabas.wire.messages import write_request, write_response

HEARTBEATS = range(APIS[ApiKey.HEARTBEAT].version_min, APIS[ApiKey.HEARTBEAT].version_max + 1)
COMMITS = range(APIS[ApiKey.OFFSET_COMMIT].version_min, APIS[ApiKey.OFFSET_COMMIT].version_max + 1)
TOPIC_ID = UUID(int=0x1234)
LONG = "ä" * 100


@pytest.mark.parametrize("version", HEARTBEATS)
@pytest.mark.parametrize("instance_id", [None, "", "worker-1", LONG])
def test_heartbeat_request_is_read_as_kios(version: int, instance_id: str | None) -> None:
    asked = {"group_id": LONG, "generation_id": 7, "member_id": "m", "group_instance_id": instance_id}
    body = memoryview(write_request(ApiKey.HEARTBEAT, version, asked))

    expected = (LONG, 7, "m", instance_id if version >= 3 else None)
    assert decode_heartbeat_request(version, body) == expected
    for length in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode_heartbeat_request(version, body[:length])


@pytest.mark.parametrize("version", HEARTBEATS)
def test_heartbeat_response_is_written_as_kios(version: int) -> None:
    values = {"throttle_time_ms": 5, "error_code": ErrorCode.REBALANCE_IN_PROGRESS}

    expected = write_response(ApiKey.HEARTBEAT, version, values)
    assert encode_heartbeat_response(version, ErrorCode.REBALANCE_IN_PROGRESS, 5) == expected


def commit_values(**changes: Any) -> dict[str, Any]:
    partitions = [
        {"partition_index": 3, "committed_offset": 2**40, "committed_leader_epoch": 9, "committed_metadata": ""},
        {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": None},
        {"partition_index": 1, "committed_offset": 1, "committed_leader_epoch": 0, "committed_metadata": LONG},
    ]
    return {
        "group_id": "billing",
        "generation_id_or_member_epoch": 4,
        "member_id": LONG,
        "group_instance_id": None,
        "retention_time_ms": 1000,
        "topics": [
            {"name": "orders", "topic_id": TOPIC_ID, "partitions": partitions},
            {"name": LONG, "topic_id": ZERO_UUID, "partitions": []},
        ],
        **changes,
    }


@pytest.mark.parametrize("version", COMMITS)
@pytest.mark.parametrize("instance_id", [None, "worker-1", LONG])
def test_commit_request_is_read_as_kios(version: int, instance_id: str | None) -> None:
    body = memoryview(write_request(ApiKey.OFFSET_COMMIT, version, commit_values(group_instance_id=instance_id)))

    read = decode_commit(version, body)

    assert (read.group_id, read.generation, read.member_id) == ("billing", 4, LONG)
    assert read.instance_id == (instance_id if version >= 7 else None)
    assert read.retention_ms == (1000 if version <= 4 else NO_RETENTION)
    first, second = read.topics
    assert first.topic == (TOPIC_ID.bytes if version >= 10 else "orders")
    epochs = (9, -1, 0) if version >= 6 else (-1, -1, -1)
    expected = [(3, 2**40, epochs[0], ""), (0, 0, epochs[1], None), (1, 1, epochs[2], LONG)]
    assert first.partitions == expected
    assert second.topic == (ZERO_UUID.bytes if version >= 10 else LONG)
    assert second.partitions == []


@pytest.mark.parametrize("version", COMMITS)
def test_cut_commit_request_is_malformed(version: int) -> None:
    body = memoryview(write_request(ApiKey.OFFSET_COMMIT, version, commit_values()))

    for length in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode_commit(version, body[:length])


@pytest.mark.parametrize("version", COMMITS)
def test_commit_response_is_written_as_kios(version: int) -> None:
    topics = [("orders", TOPIC_ID), (LONG, ZERO_UUID)]
    answers = [[(0, ErrorCode.NONE), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)], []]
    values = {
        "throttle_time_ms": 3,
        "topics": [
            {
                "name": name,
                "topic_id": topic_id,
                "partitions": [{"partition_index": index, "error_code": code} for index, code in partitions],
            }
            for (name, topic_id), partitions in zip(topics, answers, strict=True)
        ],
    }
    results: list[CommitResult] = [
        (topic_id.bytes if version >= 10 else name, partitions)
        for (name, topic_id), partitions in zip(topics, answers, strict=True)
    ]

    expected = write_response(ApiKey.OFFSET_COMMIT, version, values)
    assert encode_committed(version, results, 3) == expected
