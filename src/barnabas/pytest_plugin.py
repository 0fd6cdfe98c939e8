"""For pytest: `barnabas_broker` and `barnabas_bootstrap`, in every test-suite where Barnabas is installed.

One broker serves the whole session. Each test that asks for it finds it running, without topics and without faults,
whatever the test before left behind. The broker is imported when the first test asks for it, so that a suite that does
not use it pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing import Broker


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
