"""A manager of two log directories with a partition in each, on a simulated disk."""

from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.directories.manager import LogManager
from tests.support.log_directories import EAGER, ORDERS, ORDERS_1, TOPIC_ID, A, B, append, open_manager


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk(clock: ManualClock) -> SimulatedDisk:
    return SimulatedDisk(Random(5), clock=clock)


@pytest.fixture
def manager(disk: SimulatedDisk, clock: ManualClock) -> LogManager:
    """`orders-0` in /a, `orders-1` in /b, one record in each, flushed."""
    manager, _ = open_manager(disk, clock, [A, B])
    for partition in (ORDERS, ORDERS_1):
        append(manager.create(partition, TOPIC_ID, EAGER), b"flushed")
    manager.run_due_work()
    return manager
