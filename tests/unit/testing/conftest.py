"""A broker for the tests, and a client that gives up soon."""

from collections.abc import Iterator

import pytest

from barnabas.client.blocking import BlockingClient
from barnabas.testing import Broker
from tests.support.testing_broker import PATIENCE


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


@pytest.fixture
def client(broker: Broker) -> Iterator[BlockingClient]:
    with BlockingClient(broker.bootstrap, PATIENCE) as one:
        yield one
