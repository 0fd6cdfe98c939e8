"""For pytest: `barnabas_broker`, `barnabas_bootstrap` and `barnabas_cluster`, in every test-suite where Barnabas is
installed.

One broker, and one cluster of three, serve the whole session. Each test that asks for them finds them running, without
topics and without faults, whatever the test before left behind. The brokers are imported when the first test asks for
one, so that a suite that does not use them pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing import Broker, Cluster


@pytest.fixture(scope="session")
def barnabas_session_broker() -> Iterator[Broker]:
    """The broker of the session, as the tests left it: most want `barnabas_broker`."""
    from barnabas.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def barnabas_broker(barnabas_session_broker: Broker) -> Iterator[Broker]:
    """A running broker without topics."""
    broker = barnabas_session_broker
    yield broker
    broker.clear_faults()
    if not broker.is_running:
        broker.start()
    broker.drop_connections()  # a client that a test forgot would make its topics anew
    broker.delete_all_topics()


@pytest.fixture
def barnabas_bootstrap(barnabas_broker: Broker) -> str:
    """The broker's address, for clients."""
    return barnabas_broker.bootstrap


@pytest.fixture(scope="session")
def barnabas_session_cluster() -> Iterator[Cluster]:
    """The cluster of the session, as the tests left it: most want `barnabas_cluster`."""
    from barnabas.testing import Cluster

    with Cluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def barnabas_cluster(barnabas_session_cluster: Cluster) -> Iterator[Cluster]:
    """Three running brokers without topics."""
    cluster = barnabas_session_cluster
    yield cluster
    cluster.heal()
    for broker in cluster:
        broker.clear_faults()
        broker.resume()
    cluster.start()
    for broker in cluster:
        broker.drop_connections()  # a client that a test forgot would make its topics anew
    cluster.delete_all_topics()
