"""A process killed in the middle of its writes: nothing acknowledged is lost, and no multi is there in half."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from barnabas.base.clock import ManualClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.store import MetadataStore

ROUNDS = 6

WRITER = """
import asyncio, os, sys
from barnabas.base.clock import SystemClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.store import Create, Delete, SetData

async def main(directory, first):
    store = await EmbeddedMetadata.open(directory, LocalFileSystem(), SystemClock())
    session = store.session()
    if await session.exists("/pairs") is None:
        await session.multi([Create("/pairs"), Create("/counter", b"0")])
    await session.create("/alive", ephemeral=True)
    number = first
    while True:
        async def write(number):
            data = str(number).encode()
            name = f"/pairs/{number}"
            operations = [Create(name, data), Create(name + "/child", data * 500), SetData("/counter", data)]
            if number % 3 == 2 and number - 2 >= first:
                operations += [Delete(f"/pairs/{number - 2}/child"), Delete(f"/pairs/{number - 2}")]
            await session.multi(operations)
            os.write(1, b"%d\\n" % number)
        await asyncio.gather(*(write(number + i) for i in range(3)))
        number += 3

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def check(store: MetadataStore, acknowledged: list[int], first: int) -> int:
    """What must be there is there, whole; the first number that the next writer may use."""
    assert await store.exists("/alive") is None
    counter = int((await store.get("/counter")).data)
    numbers = {int(name) for name in await store.children("/pairs")}
    assert counter >= max(acknowledged, default=0)
    assert max(numbers, default=0) == counter
    for number in numbers:
        data = str(number).encode()
        assert (await store.get(f"/pairs/{number}")).data == data
        assert (await store.get(f"/pairs/{number}/child")).data == data * 500
    written = set(range(first, counter + 1))
    removed = {number - 2 for number in written if number % 3 == 2 and number - 2 >= first}
    assert written - removed == {number for number in numbers if number >= first}
    return counter + 1


def test_killed_process_keeps_every_acknowledged_write_and_no_half_of_one(tmp_path: Path) -> None:
    source = random.Random(4)
    first = 0
    for _ in range(ROUNDS):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(first)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            wanted = source.randrange(1, 120)
            acknowledged = [int(writer.stdout.readline()) for _ in range(wanted)]
            os.kill(writer.pid, signal.SIGKILL)
            acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
        assert writer.returncode == -signal.SIGKILL

        async def reopen(acknowledged: list[int] = acknowledged, first: int = first) -> int:
            async with await EmbeddedMetadata.open(str(tmp_path), LocalFileSystem(), ManualClock()) as store:
                store.check_invariants()
                return await check(store.session(), acknowledged, first)

        # The next writer starts at a multiple of three, so that it deletes only what it wrote itself.
        first = -(-asyncio.run(reopen()) // 3) * 3
