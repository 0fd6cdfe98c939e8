"""Bounded reads of a partition, against a broker."""

from collections.abc import Iterator

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.client.reading.ranges import OffsetOutOfRange, RangeOptions, RangeReader
from barnabas.testing import Broker
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError

PARTITION = TopicPartition("orders", 0)
RECORDS = 100
BATCH = 10


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders")
        for start in range(0, RECORDS, BATCH):
            running.append("orders", [b"%d" % index for index in range(start, start + BATCH)])
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[BlockingClient]:
    with BlockingClient(broker.bootstrap) as opened:
        yield opened


def read(client: BlockingClient, start: int, end: int, options: RangeOptions | None = None) -> list[int]:
    async def run() -> list[int]:
        offsets = []
        async with RangeReader(client.cluster, PARTITION, start, end, options) as reader:
            while (fetched := await reader.next_run()) is not None:
                offsets += [record.offset for record in fetched.records(end_offset=end)]
        return offsets

    return client.wait_for(run())


@pytest.mark.parametrize(("start", "end"), [(0, 100), (0, 1), (7, 63), (99, 100), (50, 50)])
def test_range_is_read_from_its_start_to_its_end(client: BlockingClient, start: int, end: int) -> None:
    assert read(client, start, end) == list(range(start, end))


def test_small_answers_bring_the_same_records_in_more_requests(broker: Broker, client: BlockingClient) -> None:
    counted = broker.delay(0.0, ApiKey.FETCH, times=None)
    assert read(client, 0, 100, RangeOptions(bytes_min=1, bytes_max=1)) == list(range(100))
    assert counted.used == RECORDS // BATCH


def test_no_request_is_sent_beyond_the_end(broker: Broker, client: BlockingClient) -> None:
    counted = broker.delay(0.0, ApiKey.FETCH, times=None)
    assert read(client, 0, 100) == list(range(100))
    assert counted.used == 1


def test_second_range_uses_the_connection_of_the_first(broker: Broker, client: BlockingClient) -> None:
    read(client, 0, 10)
    counted = broker.delay(0.0, ApiKey.API_VERSIONS, times=None)
    read(client, 10, 20)
    assert counted.used == 0


def test_lost_connections_and_retriable_errors_are_tried_again(broker: Broker, client: BlockingClient) -> None:
    broker.drop(ApiKey.FETCH, times=1)
    assert read(client, 0, 100) == list(range(100))
    broker.fail(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    assert read(client, 0, 100) == list(range(100))


def test_offset_that_is_gone_is_told_and_the_reader_goes_on_elsewhere(broker: Broker, client: BlockingClient) -> None:
    client.wait_for(client.admin.delete_records({PARTITION: 35}))

    async def run() -> tuple[int, list[int]]:
        async with RangeReader(client.cluster, PARTITION, 20, 50) as reader:
            with pytest.raises(OffsetOutOfRange) as told:
                await reader.next_run()
            reader.seek(35)
            run = await reader.next_run()
            assert run is not None
            return told.value.offset, [record.offset for record in run.records(end_offset=50)]

    assert client.wait_for(run()) == (20, list(range(35, 50)))


def test_records_that_do_not_come_in_time_are_an_error(client: BlockingClient) -> None:
    options = RangeOptions(wait_ms_max=10, timeout_seconds=0.1)
    with pytest.raises(KafkaError, match=r"orders-0 returned no records from offset 100 on \(wanted up to 150\)"):
        read(client, 90, 150, options)
