"""Any bytes in `__consumer_offsets`: groups load without them, and go on.

Three depths: the decoder raises one error alone; a coordinator loads any records that a log holds; and a real log with
flipped bytes is read to its end, with every record of the batches that are whole.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.base.clock import ManualClock
from barnabas.base.ids import TopicPartition
from barnabas.broker.group_partitions import ServedLeadership
from barnabas.groups.loading import Damage, read_records
from barnabas.groups.records import (
    CommittedOffset,
    CorruptGroupRecord,
    GroupMetadata,
    MemberMetadata,
    decode_offset,
    decode_record,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from barnabas.groups.shard import ShardStatus
from barnabas.records.batch import HEADER_BYTES
from barnabas.records.builder import BatchBuilder
from barnabas.replication.partition import Partition
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode
from tests.support.group_coordinator import MemoryPartition, Rig, turns
from tests.support.group_records import EMPTY_GROUP_VALUES, GROUP_KEY, GROUP_VALUES, OFFSET_KEY, OFFSET_VALUES
from tests.support.inline_executor import InlineExecutor
from tests.support.log_directories import TOPIC_ID, open_manager

GROUP = "g"
PARTITION = TopicPartition("__consumer_offsets", 0)
SEEDS = (OFFSET_KEY, GROUP_KEY, *OFFSET_VALUES.values(), *GROUP_VALUES.values(), *EMPTY_GROUP_VALUES.values())

numbers = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-1, 0, 1, 10_000])
times = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-1, 0, 1_700_000_000_000])
names = st.sampled_from(["", GROUP, "m", "range", "consumer", "\0", "x" * 300])
blobs = st.binary(max_size=12)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Good bytes with a few of them changed, cut or added."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for place, byte in draw(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3)):
        data[place % len(data)] = byte
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data) + draw(blobs)


members = st.builds(MemberMetadata, names, st.none() | names, names, names, numbers, numbers, blobs, blobs)
groups = st.builds(
    GroupMetadata, names, numbers, st.none() | names, st.none() | names, times, st.lists(members, max_size=3).map(tuple)
)
offsets = st.builds(CommittedOffset, times, numbers, names, times, st.none() | times)
garbage = st.binary(max_size=40) | mutated()
odd_but_good = st.tuples(names.map(encode_group_key), st.none() | groups.map(encode_group)) | st.tuples(
    st.builds(encode_offset_key, names, names, numbers), st.none() | offsets.map(encode_offset)
)
records = st.tuples(garbage, st.none() | garbage) | odd_but_good


@given(garbage, st.none() | garbage)
def test_decoder_raises_nothing_but_its_own_error(key: bytes, value: bytes | None) -> None:
    with suppress(CorruptGroupRecord):
        decode_record(key, value)
    with suppress(CorruptGroupRecord):
        decode_offset(key)


def batch_of(together: Sequence[tuple[bytes, bytes | None]], base_offset: int) -> bytearray:
    builder = BatchBuilder(base_offset=base_offset)
    for key, value in together:
        builder.append(1000, key, value)
    return builder.build()


@settings(max_examples=150)
@given(st.lists(st.lists(records, min_size=1, max_size=5), max_size=5))
@example([[(b"\0\1", None)]])
def test_any_records_are_loaded_and_groups_go_on(batches: list[list[tuple[bytes, bytes | None]]]) -> None:
    async def scenario() -> None:
        log, end_offset = [], 0
        for together in batches:
            log.append(batch_of(together, end_offset))
            end_offset += len(together)
        rig = Rig()
        await rig.lead(MemoryPartition(0, log))
        shard = rig.shard
        assert shard.status is ShardStatus.ACTIVE
        shard.state.groups.check_invariants()
        for group_id in shard.state.groups.group_ids():
            shard.state.describe(group_id)
            for _, offsets in shard.state.fetch_all_offsets(group_id):
                list(offsets)
            for effects in shard.state.expire_offsets(group_id, rig.coordinator.now()):
                shard.carry_out(effects)
        assert await rig.commit(7, "new") == [ErrorCode.NONE]
        rig.pass_time(3_000_000)  # every session and rebalance is over
        await turns(20)
        shard.state.groups.check_invariants()
        rig.coordinator.close()

    asyncio.run(scenario())


class Flip(NamedTuple):
    batch: int
    byte: int
    mask: int


class DamagedLog:
    """A log of batches of three records each, in which bytes are flipped for a while."""

    def __init__(self, batch_count: int) -> None:
        clock = ManualClock()
        self._disk = SimulatedDisk(Random(1), clock=clock)
        manager, _ = open_manager(self._disk, clock, ["/a"])
        log = manager.create(PARTITION, TOPIC_ID, LogConfig(index_interval_bytes=200, segment_bytes=2_000))
        for number in range(batch_count):
            log.append(batch_of([(b"%d-%d" % (number, one), b"v" * 20) for one in range(3)], 0), 0)
            log.write()
        log.advance_high_watermark(log.end_offset)
        self.partition = ServedLeadership(Partition(PARTITION, TOPIC_ID, log, None), InlineExecutor())  # type: ignore[arg-type] # only read
        self._places = [
            (f"{segment.base_offset:020d}.log", position, header.size_bytes)
            for segment in log.segments
            for position, header in segment.headers(0)
        ]

    @contextmanager
    def flipped(self, flips: Sequence[Flip]) -> Iterator[None]:
        for flip in flips:
            self._flip(flip)
        try:
            yield
        finally:
            for flip in flips:
                self._flip(flip)

    def _flip(self, flip: Flip) -> None:
        name, position, size_bytes = self._places[flip.batch]
        file = self._disk.open(f"/a/{PARTITION}/{name}", write=True)
        place = position + flip.byte % size_bytes
        [byte] = file.read_at(1, place)
        file.write_at([bytes([byte ^ flip.mask])], place)
        file.close()

    def read_keys(self) -> tuple[list[bytes], Damage]:
        keys: list[bytes] = []
        damage = Damage()

        def take(some: Sequence[bytes], values: object, offsets: object) -> None:
            keys.extend(some)

        asyncio.run(read_records(self.partition, 500, take, damage))
        return keys, damage


BATCHES = 60
LOG = DamagedLog(BATCHES)
flips = st.builds(Flip, st.integers(0, BATCHES - 1), st.integers(0, 500), st.integers(1, 255))


def keys_of(batches: Iterable[int]) -> list[bytes]:
    return [b"%d-%d" % (number, one) for number in batches for one in range(3)]


@settings(max_examples=150, deadline=None)
@given(st.lists(flips, min_size=1, max_size=4))
def test_log_with_flipped_bytes_is_read_to_its_end(flips: list[Flip]) -> None:
    with LOG.flipped(flips):
        keys, _ = LOG.read_keys()
    hit = {flip.batch for flip in flips}
    assert len(set(keys)) >= 3 * (BATCHES - 12 * len(hit)), "the index leads on, a few batches after each"


@settings(max_examples=60, deadline=None)
@given(st.lists(flips, min_size=1, max_size=4))
def test_records_that_are_damaged_take_no_others_with_them(flips: list[Flip]) -> None:
    in_records = [flip._replace(byte=HEADER_BYTES + flip.byte % 60) for flip in flips]
    with LOG.flipped(in_records):
        keys, damage = LOG.read_keys()
    hit = {flip.batch for flip in flips}
    whole = keys_of(number for number in range(BATCHES) if number not in hit)
    assert [key for key in keys if int(key.split(b"-")[0]) not in hit] == whole
    if len(set(in_records)) == len(in_records) == len({(flip.batch, flip.byte) for flip in in_records}):
        assert (damage.batches, damage.first_offset) == (len(hit), 3 * min(hit))


def test_whole_log_is_read_without_damage() -> None:
    keys, damage = LOG.read_keys()
    assert keys == keys_of(range(BATCHES))
    assert damage.first_offset is None
