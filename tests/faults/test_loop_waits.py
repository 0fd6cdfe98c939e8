"""No request, and no housekeeping, holds the broker's event loop: other connections are answered meanwhile."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.records.batch import Codec
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.bombs import hollow, zstd_bomb
from tests.support.broker_process import BrokerProcess
from tests.support.loop_waits import WAIT_SECONDS_MAX, LongestWait
from tests.support.side_by_side import Side

pytestmark = pytest.mark.slow

PARTITIONS = 12
TOPIC = "attacked"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("loop-waits")
    with BrokerProcess(directory) as process:
        yield process


@pytest.fixture(scope="module")
def side(broker: BrokerProcess) -> Iterator[Side]:
    side = Side("Barnabas", broker.bootstrap)
    side.create_topic(TOPIC, PARTITIONS)
    side.create_topic("recompressed", PARTITIONS, {"compression.type": "gzip", "compression.gzip.level": "9"})
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
    with LongestWait(broker.bootstrap) as wait:
        answers = _produce(side, TOPIC, bombs)
    assert {one["error_code"] for one in answers} == {ErrorCode.MESSAGE_TOO_LARGE}
    assert wait.seconds < WAIT_SECONDS_MAX


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_produce_of_batches_made_of_empty_pieces_keeps_nobody_waiting(
    broker: BrokerProcess, side: Side, codec: Codec
) -> None:
    with LongestWait(broker.bootstrap) as wait:
        answers = _produce(side, TOPIC, [hollow(codec)] * PARTITIONS)
    assert {one["error_code"] for one in answers} == {ErrorCode.NONE}
    assert wait.seconds < WAIT_SECONDS_MAX
