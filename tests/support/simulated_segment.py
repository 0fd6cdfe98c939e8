"""One segment on a simulated disk: how the tests make it, fill it and cut it."""

from contextlib import closing

from barnabas.records.batch import Codec, read_header
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.segment.handles import Handles
from barnabas.storage.segment.segment import Segment, mark_of
from tests.support.log_model import data_batch

BASE = 100
INTERVAL = 150


def new_segment(disk: SimulatedDisk, suffix: str = "") -> Segment:
    return Segment(disk, Handles(), "", BASE, index_bytes_max=10_000, created_ms=5_000, suffix=suffix)


def append(
    segment: Segment, offset: int, *timestamps: int, value_bytes: int = 20, codec: Codec = Codec.NONE, epoch: int = 2
) -> int:
    """Appends a batch and returns the offset after it."""
    batch = data_batch(timestamps or [1_000], value_bytes, codec=codec, base_offset=offset, leader_epoch=epoch)
    header = read_header(batch)
    segment.append([batch], offset, [mark_of(header)], INTERVAL)
    return header.next_offset


def truncate(segment: Segment, offset: int) -> None:
    cut = segment.cut_to(offset)
    assert cut is not None
    with closing(cut.run(segment._files)) as log:
        log.sync()


def filled(segment: Segment, batches: int = 10) -> Segment:
    """Batches of two records each, at 100, 102, ..., with the timestamps 1000, 1002, ..."""
    offset = BASE
    for number in range(batches):
        offset = append(segment, offset, 1_000 + 2 * number, 1_001 + 2 * number)
    return segment
