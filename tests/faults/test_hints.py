"""A flipped bit in any file beside the records: the broker starts, and every record is served.

What is in these files is a hint or a cache (indexes, snapshots, checkpoints), or can be known otherwise (the topic id).
Not so `meta.properties`, which says whose directory it is.
"""

from copy import deepcopy
from random import Random

from barnabas.base.filesystem import read_file
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import CLEAN_SHUTDOWN
from barnabas.storage.directories.meta_properties import META_PROPERTIES
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import ServedBroker
from tests.support.simulated_broker import LOG_DIRECTORY, Machine, produce, stored_values

BITS_OF_EACH_FILE = 3
RECORDS = 30
DELETED = 10


async def write(broker: ServedBroker) -> None:
    await broker.create("orders", index_interval_bytes="100", flush_messages="1")
    for number in range(RECORDS):
        await produce(broker, "orders", b"%d" % number)
    start = {"name": "orders", "partitions": [{"partition_index": 0, "offset": DELETED}]}
    await broker.ask(ApiKey.DELETE_RECORDS, 2, topics=[start], timeout_ms=1000)


async def read(broker: ServedBroker) -> list[bytes | None]:
    return stored_values(broker, "orders")


def files_below(disk: SimulatedDisk, directory: str) -> list[str]:
    paths = [f"{directory}/{name}" for name in disk.list(directory)]
    return [path for one in paths for path in (files_below(disk, one) if disk.is_directory(one) else [one])]


def bits_that_hurt(path: str, content: bytes) -> list[int]:
    """The sign of the last position in an index; a digit that becomes a larger one."""
    if path.endswith(".index"):
        return [8 * (len(content) - 4) + 7]
    if path.endswith("-checkpoint"):
        return [8 * position + 3 for position, byte in enumerate(content) if byte in b"01"]
    return []


def test_flipped_bit_beside_the_records_neither_stops_the_start_nor_loses_one() -> None:
    source = Random(6)
    stopped = Machine()
    stopped.run(write)
    killed = deepcopy(stopped)
    killed.disk.remove(f"{LOG_DIRECTORY}/{CLEAN_SHUTDOWN}")
    expected = [b"%d" % number for number in range(DELETED, RECORDS)]
    damaged = set()
    for machine in (stopped, killed):
        for path in files_below(machine.disk, LOG_DIRECTORY):
            content = read_file(machine.disk, path)
            if not content or path.endswith((".log", META_PROPERTIES)):
                continue
            damaged.add(path.rpartition("/")[2])
            for bit in [*bits_that_hurt(path, content), *source.sample(range(8 * len(content)), BITS_OF_EACH_FILE)]:
                one = deepcopy(machine)
                file = one.disk.open(path, write=True)
                file.write_at([bytes([content[bit // 8] ^ 1 << bit % 8])], bit // 8)
                file.close()
                values = one.run(read) or []
                # Without its checkpoint a log starts with its first segment: deleted records may be back.
                assert values[-len(expected) :] == expected, f"{path}, bit {bit}"
    assert len(damaged) == 10, damaged
