"""No flipped bit escapes `verify`, and whatever lies in a directory, the tools end by saying so and not otherwise."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.clock import ManualClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.storage.tools.overlay import OverlayFileSystem
from barnabas.storage.tools.repair import repair
from barnabas.storage.tools.verify_directory import find_target, verify_target
from tests.support.sample_log import START_MS, make_sample

FILES = LocalFileSystem()
PLAIN_TEXT = ("meta.properties", "partition.metadata", "-checkpoint", ".kafka_cleanshutdown")


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        data = make_sample(Path(directory))
        (data / "cleaner-offset-checkpoint").write_text("0\n0\n")  # so that a gap is known to be wrong
        yield data


def files_of(data: Path) -> list[Path]:
    return sorted(path for path in data.rglob("*") if path.is_file() and path.stat().st_size)


@given(draw=st.data())
def test_flipped_bit_is_found_and_repair_does_not_stumble(data: Path, draw: st.DataObject) -> None:
    binary = [path for path in files_of(data) if not path.name.endswith(PLAIN_TEXT)]
    path = draw.draw(st.sampled_from(binary))
    original = path.read_bytes()
    bit = draw.draw(st.integers(0, len(original) * 8 - 1))
    flipped = bytearray(original)
    flipped[bit // 8] ^= 1 << bit % 8
    target = find_target(FILES, str(data))
    try:
        path.write_bytes(flipped)

        assert not verify_target(FILES, target).is_sound
        report = repair(OverlayFileSystem(FILES), target, ManualClock(START_MS), random.Random(0))
        assert [done.failure for done in report.partitions] == [None]
    finally:
        path.write_bytes(original)


@given(draw=st.data())
def test_any_content_of_any_file_is_survived(data: Path, draw: st.DataObject) -> None:
    path = draw.draw(st.sampled_from(files_of(data)))
    original = path.read_bytes()
    cut = draw.draw(st.integers(0, len(original)))
    target = find_target(FILES, str(data))
    try:
        path.write_bytes(original[:cut] + draw.draw(st.binary(max_size=200)))

        before = verify_target(FILES, target)
        report = repair(OverlayFileSystem(FILES), target, ManualClock(START_MS), random.Random(0))
        assert report.before == before
    finally:
        path.write_bytes(original)
