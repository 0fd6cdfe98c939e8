"""No request, and no housekeeping, holds the broker's event loop: other connections are answered meanwhile."""

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas.records.batch import Codec
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.bombs import hollow, many_records, zstd_bomb
from tests.support.broker_process import BrokerProcess
from tests.support.loop_waits import assert_nobody_waits
from tests.support.side_by_side import Side
from tests.support.side_by_side_produce import batch

pytestmark = pytest.mark.slow

PARTITIONS = 12
TOPIC = "attacked"
RECOMPRESSED = "recompressed"
NOISE = Random(5).randbytes(250_000).hex().encode()
"""Half a megabyte that does not compress well."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("loop-waits")
    with BrokerProcess(directory) as process:
        yield process


@pytest.fixture(scope="module")
def side(broker: BrokerProcess) -> Iterator[Side]:
    side = Side("Barnabas", broker.bootstrap)
    side.create_topic(TOPIC, PARTITIONS)
    side.create_topic("times")
    side.create_topic(RECOMPRESSED, PARTITIONS, {"compression.type": "zstd", "compression.zstd.level": "19"})
    yield side
    side.close()


def _produce(side: Side, topic: str, contents: list[bytes]) -> list[dict[str, Any]]:
    """One batch to each of the first partitions, in one request; the answers by partition."""
    partitions = [{"index": index, "records": content} for index, content in enumerate(contents)]
    asked = {"acks": -1, "timeout_ms": 60_000, "topic_data": [{**side.topic(topic), "partition_data": partitions}]}
    answer = side.ask(ApiKey.PRODUCE, 12, asked)
    return sorted(answer["responses"][0]["partition_responses"], key=lambda one: one["index"])


def test_produce_of_bombs_is_refused_and_keeps_nobody_waiting(broker: BrokerProcess, side: Side) -> None:
    bombs = [zstd_bomb(8 << 10)] * PARTITIONS

    def work() -> None:
        answers = _produce(side, TOPIC, bombs)
        assert {one["error_code"] for one in answers} == {ErrorCode.MESSAGE_TOO_LARGE}

    assert_nobody_waits(broker.bootstrap, work)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_produce_of_batches_made_of_empty_pieces_keeps_nobody_waiting(
    broker: BrokerProcess, side: Side, codec: Codec
) -> None:
    pieces = [hollow(codec)] * 4

    def work() -> None:
        assert {one["error_code"] for one in _produce(side, TOPIC, pieces)} == {ErrorCode.NONE}

    assert_nobody_waits(broker.bootstrap, work)


def test_produce_that_is_compressed_anew_keeps_nobody_waiting(broker: BrokerProcess, side: Side) -> None:
    def work() -> None:
        answers = _produce(side, RECOMPRESSED, [batch(1, value=NOISE)] * 6)
        assert {one["error_code"] for one in answers} == {ErrorCode.NONE}

    assert_nobody_waits(broker.bootstrap, work)


def test_look_for_a_time_in_a_batch_of_many_records_keeps_nobody_waiting(broker: BrokerProcess, side: Side) -> None:
    records, now_ms = 300_000, int(time.time() * 1000)
    [answer] = _produce(side, "times", [many_records(records, now_ms)])
    asked = {"topics": [{"name": "times", "partitions": [{"partition_index": 0, "timestamp": now_ms}]}]}

    def work() -> None:
        found = side.ask(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, **asked})
        assert found["topics"][0]["partitions"][0]["offset"] == answer["base_offset"] + records - 1

    assert_nobody_waits(broker.bootstrap, work)


def test_topic_that_is_deleted_keeps_nobody_waiting(broker: BrokerProcess, side: Side) -> None:
    def work() -> None:
        side.create_topic("wide", 1000)
        asked = {"topics": [{"name": "wide", "topic_id": None}], "timeout_ms": 60_000}
        answer = side.ask(ApiKey.DELETE_TOPICS, 6, asked)
        assert answer["responses"][0]["error_code"] == ErrorCode.NONE

    assert_nobody_waits(broker.bootstrap, work)


def test_impossible_growth_of_topics_that_are_being_created_keeps_nobody_waiting(
    broker: BrokerProcess, side: Side
) -> None:
    """The image that the request sees may not have a topic yet that the store has: the limit holds for that, too."""
    topic = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    created = side.line("creation")
    tries = count()

    def work() -> None:
        names = [f"growing-{next(tries)}-{number}" for number in range(20)]
        created.begin(
            ApiKey.CREATE_TOPICS, 4, {"topics": [{"name": name, **topic} for name in names], "timeout_ms": 10_000}
        )
        asked = {"topics": [{"name": name, "count": 2**31 - 1, "assignments": None} for name in names]}
        for _ in range(20):
            answer = side.ask(ApiKey.CREATE_PARTITIONS, 3, {**asked, "timeout_ms": 10_000, "validate_only": False})
            codes = {one["error_code"] for one in answer["results"]}
            assert codes <= {ErrorCode.INVALID_PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert {one["error_code"] for one in created.finish()["topics"]} == {ErrorCode.NONE}

    assert_nobody_waits(broker.bootstrap, work)
