"""An empty segment on a simulated disk."""

from random import Random

import pytest

from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.segment.segment import Segment
from tests.support.simulated_segment import new_segment


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


@pytest.fixture
def segment(disk: SimulatedDisk) -> Segment:
    segment = new_segment(disk)
    segment.create()
    return segment
