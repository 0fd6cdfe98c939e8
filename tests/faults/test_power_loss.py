"""A loss of power at the worst moments of a broker's life: what was acknowledged and flushed is there."""

from tests.support.broker_parts import ServedBroker
from tests.support.simulated_broker import READING, Machine, produce, stored_values

FLUSHED = {"flush_messages": "1"}


async def write_one(broker: ServedBroker) -> None:
    await broker.create("orders", **FLUSHED)
    assert await produce(broker, "orders", b"paid") == 0


async def read_all(broker: ServedBroker) -> list[bytes | None]:
    return stored_values(broker, "orders")


def test_power_loss_after_the_first_start_keeps_the_directory_and_the_flushed_record() -> None:
    machine = Machine()

    async def story(broker: ServedBroker) -> None:
        await write_one(broker)
        machine.disk = machine.disk.power_loss_image()

    machine.run(story)
    assert machine.run(read_all) == [b"paid"]


def test_first_start_that_was_killed_anywhere_is_followed_by_one_that_survives_a_power_loss() -> None:
    """The name of an empty data directory, or of a partition just made, may not be durable."""
    calls: list[int] = []

    def count(number: int, operation: str, path: str) -> bool:
        if operation not in READING:
            calls.append(number)
        return False

    Machine().run(write_one, dies_at=count)
    for death in calls:
        machine = Machine()
        machine.run(write_one, dies_at=lambda number, operation, path, death=death: number >= death)

        async def story(broker: ServedBroker, machine: Machine = machine) -> None:
            if broker.broker.replicas.get("orders", 0) is None:
                await broker.create("orders", **FLUSHED)
            await produce(broker, "orders", b"again")
            machine.disk = machine.disk.power_loss_image()

        machine.run(story)
        assert machine.run(read_all) in ([b"again"], [b"paid", b"again"]), f"killed before call {death}"
