"""The client without an event loop. What it does against real brokers is in the compatibility tests."""

import socket
import threading

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import ClusterUnreachable, UnknownTopic
from barnabas.client.offsets import end_offsets
from barnabas.testing import Broker


def client_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "barnabas-client"]


def test_client_that_finds_no_broker_leaves_no_thread() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ClusterUnreachable), BlockingClient(f"127.0.0.1:{port}"):
        pass
    assert client_threads() == []


def test_calls_wait_for_their_results_and_errors() -> None:
    with Broker() as broker, BlockingClient(broker.bootstrap) as client:
        client.create_topic("orders")
        first, second = client.produce("orders", [b"two coffees", None])
        assert (first.offset, second.offset) == (0, 1)
        assert [record.value for record in client.read("orders")] == [b"two coffees", None]
        assert client.wait_for(end_offsets(client.cluster, [first.partition])) == {TopicPartition("orders", 0): 2}
        with pytest.raises(UnknownTopic):
            list(client.read("letters"))
    assert client_threads() == []


def test_reading_that_is_left_in_the_middle_closes_its_consumer() -> None:
    with Broker() as broker, BlockingClient(broker.bootstrap) as client:
        client.create_topic("orders")
        client.produce("orders", [b"%d" % number for number in range(100)])
        reading = client.read("orders")
        assert next(reading).value == b"0"
        reading.close()  # type: ignore[attr-defined]
        assert [record.value for record in client.read("orders", positions={0: 99})] == [b"99"]
