"""A broker of Barnabas or of Apache Kafka, for tests that must pass against both."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from barnabas.testing import Broker
from tests.support.kafka import KafkaNode

EITHER = ("barnabas", pytest.param("kafka", marks=pytest.mark.kafka))
"""The parameters of a fixture that calls `either_broker`."""


@contextmanager
def either_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The addresses of the broker that the fixture's parameter names."""
    if request.param == "barnabas":
        with Broker(settings or {}) as broker:
            yield broker.bootstrap
        return
    request.getfixturevalue("kafka")
    with KafkaNode(tmp_path_factory.mktemp("kafka"), settings) as node:
        yield node.bootstrap_servers
