"""A compacted log on a simulated disk."""

import pytest

from barnabas.sim.disk import SimulatedDisk
from tests.support.compaction import CompactedLog, simulated


@pytest.fixture
def disk() -> SimulatedDisk:
    return simulated()


@pytest.fixture
def accounts(disk: SimulatedDisk) -> CompactedLog:
    return CompactedLog(disk)
