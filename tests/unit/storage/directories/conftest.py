"""A manager of two empty log directories on a simulated disk."""

from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.directories.manager import LogManager
from tests.support.log_directories import A, B, open_manager


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk(clock: ManualClock) -> SimulatedDisk:
    return SimulatedDisk(Random(3), clock=clock)


@pytest.fixture
def manager(disk: SimulatedDisk, clock: ManualClock) -> LogManager:
    return open_manager(disk, clock, [A, B])[0]
