"""Every served API in every version, with good and bad requests: Barnabas answers what Apache Kafka 4.3.1 answers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from barnabas.wire.apis import ApiKey
from tests.support.kafka import KafkaNode
from tests.support.side_by_side import Intended, Pair, Side
from tests.support.side_by_side_fetch import (
    tell_delete_records,
    tell_describe_producers,
    tell_fetch,
    tell_list_offsets,
    tell_offset_for_leader_epoch,
)
from tests.support.side_by_side_produce import tell_init_producer_id, tell_produce

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SETTINGS = {"auto.create.topics.enable": "true", "num.partitions": "1"}

NO_TRANSACTIONS = "there are no transactions yet: clients are to stop at once instead of asking again"

INTENDED = (
    Intended(ApiKey.PRODUCE, "records that cannot be decompressed are corrupt, not our failure", "codec *"),
    Intended(
        ApiKey.PRODUCE, "a timestamp is refused for the batch, with the range in words", "time *", "*record_errors"
    ),
    Intended(ApiKey.PRODUCE, NO_TRANSACTIONS, "transactional id"),
    Intended(
        ApiKey.PRODUCE, "both batches are kept, where Kafka drops the first without a word", "twice the same partition"
    ),
    Intended(ApiKey.INIT_PRODUCER_ID, NO_TRANSACTIONS, "transactional id", "error_code"),
    Intended(ApiKey.INIT_PRODUCER_ID, NO_TRANSACTIONS, "timeout of a transaction *", "error_code"),
)
"""Where Barnabas means to answer otherwise. A row that is not needed any more fails its API's test."""

STORIES: dict[ApiKey, Callable[[Pair], None]] = {
    ApiKey.PRODUCE: tell_produce,
    ApiKey.INIT_PRODUCER_ID: tell_init_producer_id,
    ApiKey.FETCH: tell_fetch,
    ApiKey.LIST_OFFSETS: tell_list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: tell_offset_for_leader_epoch,
    ApiKey.DELETE_RECORDS: tell_delete_records,
    ApiKey.DESCRIBE_PRODUCERS: tell_describe_producers,
}


@pytest.fixture(scope="module")
def sides(kafka: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with KafkaNode(tmp_path_factory.mktemp("kafka"), SETTINGS) as node, Broker(SETTINGS) as broker:
        ours, kafkas = Side("Barnabas", broker.bootstrap), Side("Kafka", node.bootstrap_servers)
        yield ours, kafkas
        ours.close()
        kafkas.close()


@pytest.mark.parametrize("api_key", STORIES, ids=lambda api_key: api_key.name.lower())
def test_answers_are_those_of_kafka(sides: tuple[Side, Side], api_key: ApiKey) -> None:
    pair = Pair(*sides, INTENDED)
    STORIES[api_key](pair)
    assert pair.compared > 0
    unexplained = "\n".join(str(difference) for difference in pair.unexplained())
    assert not unexplained, f"{len(pair.unexplained())} fields differ:\n{unexplained}"
    assert pair.unused(api_key) == []
