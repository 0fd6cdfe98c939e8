"""Directories whose topics the metadata does not know, or knows under another id: never served, never lost.

A broker is killed before each call of its disk while a topic is deleted and made again; loses its metadata; gets a log
directory back in which an older topic of the same name lies.
"""

from collections.abc import Awaitable, Callable
from copy import deepcopy
from uuid import UUID

from barnabas.base.filesystem import read_file
from barnabas.metadata.deletions import Deletions
from barnabas.storage.checkpoints import PARTITION_METADATA, read_partition_metadata
from barnabas.storage.directories.meta_properties import META_PROPERTIES
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import ServedBroker
from tests.support.simulated_broker import LOG_DIRECTORY, READING, Machine, MortalTable, produce, stored_values

OLD = [b"old-1", b"old-2"]
NEW = [b"new"]
FIRST, SECOND = "disk-a/data", "disk-b/data"


async def write_old(broker: ServedBroker) -> UUID:
    await broker.create("orders", 2)
    for index in (0, 1):
        await produce(broker, "orders", *OLD, index=index)
    return broker.broker.replicas.image.topics["orders"].id


async def delete(broker: ServedBroker, name: str = "orders") -> None:
    answer = await broker.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": name, "topic_id": None}], timeout_ms=1000)
    assert answer.responses[0].error_code.value == 0, answer


async def recreate(broker: ServedBroker) -> None:
    await delete(broker)
    await broker.create("orders", 2)
    for index in (0, 1):
        assert await produce(broker, "orders", *NEW, index=index) == 0


async def write_new(broker: ServedBroker) -> None:
    if "orders" not in broker.broker.replicas.image.topics:
        await broker.create("orders", 2)
    for index in (0, 1):
        await produce(broker, "orders", *NEW, index=index)


async def read_both(broker: ServedBroker) -> list[list[bytes | None]]:
    return [stored_values(broker, "orders", index) for index in (0, 1)]


async def read_and_forget(broker: ServedBroker) -> list[list[bytes | None]]:
    """No deleted topic is remembered any more: their files are gone."""
    store = broker.broker.running.cluster.membership.store
    assert await Deletions(store, 1).load() == []
    return await read_both(broker)


def names(machine: Machine, directory: str = LOG_DIRECTORY) -> list[str]:
    return [name for name in machine.disk.list(directory) if machine.disk.is_directory(f"{directory}/{name}")]


def strays(machine: Machine, directory: str = LOG_DIRECTORY) -> list[str]:
    return [name for name in names(machine, directory) if name.endswith("-stray")]


class Killer:
    """Ends the process before the N-th call by which a story changes the disk; the start is left in peace."""

    def __init__(self, story: Callable[[ServedBroker], Awaitable[object]], death: int | None = None) -> None:
        self._story = story
        self._death = death
        self._is_armed = False
        self.changes = 0

    async def story(self, broker: ServedBroker) -> None:
        self._is_armed = True
        await self._story(broker)
        self._is_armed = False

    def strikes(self, number: int, operation: str, path: str) -> bool:
        if self._is_armed and operation not in READING:
            self.changes += 1
        return self.changes == self._death


def test_topic_recreated_around_a_kill_never_shows_the_records_of_the_deleted_one() -> None:
    prepared = Machine()
    old_id = prepared.run(write_old)

    async def write_unless_old(broker: ServedBroker) -> bool:
        topic = broker.broker.replicas.image.topics.get("orders")
        if topic is not None and topic.id == old_id:
            return True
        await write_new(broker)
        return False

    counting = Killer(recreate)
    deepcopy(prepared).run(counting.story, dies_at=counting.strikes)
    outcomes = set()
    for death in range(1, counting.changes + 1):
        machine = deepcopy(prepared)
        killer = Killer(recreate, death)
        machine.run(killer.story, dies_at=killer.strikes)
        if death % 2:
            machine.disk = machine.disk.crash()  # the power is lost, too: a rename that was not synced is undone
        is_old = machine.run(write_unless_old)
        outcomes.add(is_old)
        for values in machine.run(read_and_forget) or []:
            assert (values == OLD) if is_old else (set(values) == set(NEW)), f"killed before change {death}"
        assert not strays(machine)
    assert False in outcomes


def test_partitions_of_lost_metadata_are_set_aside_and_a_new_topic_of_the_name_begins_empty() -> None:
    machine = Machine()
    machine.run(write_old)
    machine.table = MortalTable()
    machine.disk.remove(f"{LOG_DIRECTORY}/{META_PROPERTIES}")
    old_id = read_file(machine.disk, f"{LOG_DIRECTORY}/orders-0/{PARTITION_METADATA}")

    async def look(broker: ServedBroker) -> None:
        assert len(broker.broker.opening.strays) == 2
        assert "orders" not in broker.broker.replicas.image.topics
        await write_new(broker)
        assert broker.broker.logs.stray_count == 2

    machine.run(look)
    assert machine.run(read_both) == [NEW, NEW]
    kept = strays(machine)
    assert [name.split(".")[0] for name in kept] == ["orders-0", "orders-1"]
    assert read_file(machine.disk, f"{LOG_DIRECTORY}/{kept[0]}/{PARTITION_METADATA}") == old_id
    assert all(value in read_file(machine.disk, f"{LOG_DIRECTORY}/{kept[0]}/{0:020d}.log") for value in OLD)


def test_stray_is_served_again_when_the_metadata_is_restored() -> None:
    machine = Machine()
    machine.run(write_old)
    backup = machine.table.successor()
    meta = read_file(machine.disk, f"{LOG_DIRECTORY}/{META_PROPERTIES}")

    def put_meta(content: bytes | None) -> None:
        path = f"{LOG_DIRECTORY}/{META_PROPERTIES}"
        machine.disk.remove(path)
        if content is not None:
            file = machine.disk.open(path, write=True, create=True)
            file.write_at([content], 0)
            file.close()

    async def nothing(broker: ServedBroker) -> None:
        pass

    machine.table = MortalTable()
    put_meta(None)
    machine.run(nothing)
    assert len(strays(machine)) == 2
    machine.table = backup
    put_meta(meta)
    assert machine.run(read_both) == [OLD, OLD]
    assert not strays(machine)


def test_directory_that_was_not_configured_while_its_topic_was_deleted_is_kept() -> None:
    machine = Machine(log_dirs=(FIRST, SECOND))
    machine.run(write_old)
    machine.log_dirs = (FIRST,)
    machine.run(delete)
    machine.log_dirs = (FIRST, SECOND)
    held = names(machine, SECOND)
    assert len(held) == 1

    async def nothing(broker: ServedBroker) -> list[str]:
        return broker.broker.opening.strays

    # The broker has confirmed what it could see, so of the other directory nobody knows that it was deleted.
    assert machine.run(nothing) == [f"{SECOND}/{name}" for name in strays(machine, SECOND)]
    [stray] = strays(machine, SECOND)
    assert stray.startswith(held[0])


def test_old_log_that_comes_back_with_its_directory_is_not_adopted() -> None:
    machine = Machine(log_dirs=(FIRST, SECOND))
    machine.run(write_old)
    machine.log_dirs = (FIRST,)
    machine.run(recreate)
    machine.log_dirs = (FIRST, SECOND)
    assert machine.run(read_both) == [NEW, NEW]
    assert len(strays(machine, SECOND)) == 1
    assert machine.run(read_both) == [NEW, NEW]


def test_damaged_topic_id_does_not_hide_the_records_of_a_living_topic() -> None:
    prepared = Machine()
    topic_id = prepared.run(write_old)
    path = f"{LOG_DIRECTORY}/orders-0/{PARTITION_METADATA}"
    whole = read_file(prepared.disk, path)
    for position in range(len(whole)):
        machine = deepcopy(prepared)
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 7)
        file = machine.disk.open(path, write=True)
        file.write_at([bytes(damaged)], 0)
        file.close()
        assert machine.run(read_both) == [OLD, OLD], f"byte {position} is damaged"
        assert read_partition_metadata(machine.disk, path) == topic_id


def test_missing_topic_id_does_not_hide_the_records_of_a_living_topic() -> None:
    machine = Machine()
    topic_id = machine.run(write_old)
    path = f"{LOG_DIRECTORY}/orders-0/{PARTITION_METADATA}"
    machine.disk.remove(path)
    assert machine.run(read_both) == [OLD, OLD]
    assert read_partition_metadata(machine.disk, path) == topic_id


def test_topic_whose_node_cannot_be_read_keeps_its_files_and_serves_them_when_it_is_back() -> None:
    machine = Machine()
    machine.run(write_old)
    path = "/brokers/topics/orders"

    async def put(broker: ServedBroker, data: bytes) -> None:
        await broker.broker.running.cluster.membership.store.set(path, data)
        is_there = data == whole
        await broker.broker.replicas.wait_for(lambda image: ("orders" in image.topics) == is_there)

    async def damage_and_restore(broker: ServedBroker) -> list[list[bytes | None]]:
        nonlocal whole
        whole = (await broker.broker.running.cluster.membership.store.get(path)).data
        await put(broker, b"damaged")
        await put(broker, whole)
        return await read_both(broker)

    async def damage(broker: ServedBroker) -> None:
        await put(broker, b"damaged")

    async def restore(broker: ServedBroker) -> list[list[bytes | None]]:
        assert len(broker.broker.opening.strays) == 2
        await put(broker, whole)
        assert broker.broker.logs.stray_count == 0
        return await read_both(broker)

    whole = b""
    assert machine.run(damage_and_restore) == [OLD, OLD]
    machine.run(damage)
    assert machine.run(restore) == [OLD, OLD]


def test_removal_that_fails_does_not_hand_old_records_to_the_next_topic_of_the_name() -> None:
    machine = Machine()
    machine.run(write_old)

    async def story(broker: ServedBroker) -> list[list[bytes | None]]:
        machine.disk.fail(24, operations=["rename"], path_pattern="*/orders-0")  # EMFILE: not the disk's fault
        await recreate(broker)
        return await read_both(broker)

    assert machine.run(story) == [NEW, NEW]
    assert len(strays(machine)) == 2, "both leave in one job, which ends at the first that cannot be renamed"
    assert machine.run(read_both) == [NEW, NEW]
    assert not strays(machine), "its topic was deleted, which the metadata has remembered until now"
