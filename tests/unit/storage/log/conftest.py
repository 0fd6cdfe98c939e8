"""Logs on a simulated disk that the tests of a log share."""

import pytest

from barnabas.storage.settings import LogConfig
from tests.support.simulated_log import SMALL, SimulatedLog


@pytest.fixture
def orders() -> SimulatedLog:
    return SimulatedLog(LogConfig(index_interval_bytes=200))


@pytest.fixture
def small() -> SimulatedLog:
    """Two batches to a segment."""
    return SimulatedLog(SMALL)
