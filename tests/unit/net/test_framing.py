"""Frames out of bytes that come as the network likes."""

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.net.buffers import BLOCK_BYTES, RECYCLED_BYTES_MAX, ReceiveBuffers
from barnabas.net.framing import FrameReceiver
from tests.support.network import LENGTH, framed


class _Collecting(FrameReceiver):
    def __init__(self, frame_bytes_max: int = 1 << 20, buffers: ReceiveBuffers | None = None) -> None:
        super().__init__(buffers or ReceiveBuffers(), frame_bytes_max)
        self.frames: list[memoryview] = []
        self.refused: list[int] = []
        self.hold_after = -1

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(frame)
        if len(self.frames) == self.hold_after:
            self._is_held = True

    def frame_refused(self, length: int) -> None:
        self.refused.append(length)

    def go_on(self) -> None:
        self._is_held = False
        self._parse_leftover()

    def receive(self, data: bytes) -> None:
        """As a transport would: never more than the buffer takes."""
        while data:
            buffer = self.get_buffer(len(data))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.buffer_updated(count)
            data = data[count:]

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(frame) for frame in self.frames]


BODIES = [b"first", b"", b"x" * 300, b"last"]
STREAM = b"".join(map(framed, BODIES))


@pytest.mark.parametrize("cut", range(1, len(STREAM)))
def test_frames_cut_at_any_byte_come_out_whole(cut: int) -> None:
    receiver = _Collecting()
    receiver.receive(STREAM[:cut])
    receiver.receive(STREAM[cut:])
    assert receiver.bodies == BODIES
    assert not any(frame.readonly for frame in receiver.frames)


def test_frames_that_come_byte_by_byte_come_out_whole() -> None:
    receiver = _Collecting()
    for index in range(len(STREAM)):
        receiver.receive(STREAM[index : index + 1])
    assert receiver.bodies == BODIES


def test_many_frames_in_one_segment_come_out_in_order() -> None:
    bodies = [str(number).encode() for number in range(20_000)]
    receiver = _Collecting()
    receiver.receive(b"".join(map(framed, bodies)))
    assert receiver.bodies == bodies


@given(lengths=st.lists(st.integers(0, 3 * BLOCK_BYTES), max_size=6), cuts=st.lists(st.integers(1, 2 * BLOCK_BYTES)))
def test_frames_of_any_length_in_parts_of_any_length_come_out_whole(lengths: list[int], cuts: list[int]) -> None:
    bodies = [bytes([number % 251]) * length for number, length in enumerate(lengths)]
    stream = b"".join(map(framed, bodies))
    receiver = _Collecting()
    for cut in cuts:
        receiver.receive(stream[:cut])
        stream = stream[cut:]
    receiver.receive(stream)
    assert receiver.bodies == bodies


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_length_out_of_range_is_refused_before_memory_is_taken(length: int) -> None:
    receiver = _Collecting(frame_bytes_max=1000)
    receiver.receive(framed(b"good") + LENGTH.pack(length))
    assert receiver.bodies == [b"good"]
    assert receiver.refused == [length]
    assert len(receiver.get_buffer(0)) < BLOCK_BYTES


def test_length_at_the_limit_is_received() -> None:
    receiver = _Collecting(frame_bytes_max=1000)
    receiver.receive(framed(bytes(1000)))
    assert receiver.bodies == [bytes(1000)]


def test_big_frame_is_received_in_place_and_never_passed() -> None:
    receiver = _Collecting()
    receiver.receive(LENGTH.pack(300_000) + b"begin")
    assert len(receiver.get_buffer(1 << 20)) == 300_000 - len(b"begin")
    receiver.receive(bytes(300_000 - 6))
    assert len(receiver.get_buffer(1 << 20)) == 1


def test_frames_behind_a_hold_wait_and_follow_in_order() -> None:
    receiver = _Collecting()
    receiver.hold_after = 2
    receiver.receive(STREAM + LENGTH.pack(100_000) + b"part")
    assert receiver.bodies == BODIES[:2]
    receiver.go_on()
    assert receiver.bodies == BODIES
    assert not any(frame.readonly for frame in receiver.frames)
    receiver.receive(bytes(100_000 - 4))
    assert receiver.bodies[-1] == b"part" + bytes(100_000 - 4)


def test_kept_frame_is_never_overwritten() -> None:
    buffers = ReceiveBuffers()
    receiver = _Collecting(buffers=buffers)
    kept: list[tuple[bytes, memoryview]] = []
    for number in range(600):
        body = bytes([number % 251]) * (1_000 + number * 171)
        receiver.receive(framed(body))
        if number % 7 == 0:
            kept.append((body, receiver.frames[-1]))
        receiver.frames.clear()
    assert all(bytes(frame) == body for body, frame in kept)


def test_buffers_nobody_looks_at_are_used_again() -> None:
    buffers = ReceiveBuffers()
    receiver = _Collecting(buffers=buffers)
    for length in (100, 40_000, 200_000, 900_000):
        for _ in range(2000 if length == 100 else 40):
            receiver.receive(framed(bytes(length)))
            receiver.frames.clear()
    # Two blocks in turn, and one body or two of each size.
    assert buffers.kept_bytes <= 2 * BLOCK_BYTES + 2 * ((64 << 10) + (256 << 10) + (1 << 20))


def test_buffers_of_a_burst_are_kept_up_to_the_bound() -> None:
    buffers = ReceiveBuffers()
    burst = [buffers.body(length) for length in (40_000, 200_000, 900_000) for _ in range(50)]
    assert buffers.kept_bytes <= RECYCLED_BYTES_MAX
    assert len({id(body.obj) for body in burst}) == len(burst)


def test_announced_but_unsent_frame_takes_no_resident_memory() -> None:
    buffers = ReceiveBuffers()
    before = _resident_bytes()
    bodies = [buffers.body(100 << 20) for _ in range(10)]
    assert _resident_bytes() - before < 10 << 20
    assert all(isinstance(body.obj, mmap.mmap) for body in bodies)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statistics:
        return int(statistics.read().split()[1]) * mmap.PAGESIZE
