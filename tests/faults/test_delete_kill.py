"""A broker process killed while it deletes a topic: the next topic of the name begins empty."""

import os
import time
from pathlib import Path
from random import Random

import pytest

from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.broker_process import BrokerProcess
from tests.support.side_by_side import Side
from tests.support.side_by_side_produce import batch, request

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("BARNABAS_KILL_ROUNDS", "3"))
PARTITIONS = 60
WRITTEN = (0, 30, 59)


def _topic_id(side: Side) -> str | None:
    asked = {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False}
    topic = side.ask(ApiKey.METADATA, 12, asked)["topics"][0]
    return None if topic["error_code"] else str(topic["topic_id"])


def _deletion() -> dict[str, object]:
    return {"topics": [{"name": "orders", "topic_id": None}], "timeout_ms": 10_000}


def _ends(side: Side) -> list[int]:
    latest = [{"partition_index": index, "timestamp": -1} for index in range(PARTITIONS)]
    answer = side.ask(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": [{"name": "orders", "partitions": latest}]})
    return [one["offset"] for one in answer["topics"][0]["partitions"]]


def test_topic_made_again_after_a_kill_in_its_deletion_begins_empty(tmp_path: Path) -> None:
    source = Random(11)
    with BrokerProcess(tmp_path) as broker:
        for life in range(ROUNDS):
            side = Side("Barnabas", broker.bootstrap)
            if _topic_id(side) is not None:
                assert side.ask(ApiKey.DELETE_TOPICS, 6, _deletion())["responses"][0]["error_code"] == ErrorCode.NONE
            side.create_topic("orders", PARTITIONS)
            assert _ends(side) == [0] * PARTITIONS, f"life {life}"
            for index in WRITTEN:
                answer = side.ask(ApiKey.PRODUCE, 12, request("orders", batch(2), acks=-1, partition=index)(side))
                reply = answer["responses"][0]["partition_responses"][0]
                assert (reply["error_code"], reply["base_offset"]) == (ErrorCode.NONE, 0)
            side.begin(ApiKey.DELETE_TOPICS, 6, _deletion())
            time.sleep(source.uniform(0, 0.03))  # the moment of the kill is what the test is about
            broker.kill()
            side.close()
            broker.start()
        left = [path.name for path in broker.data_directory.iterdir() if path.name.endswith("-stray")]
        assert not left, "what was deleted is removed"
