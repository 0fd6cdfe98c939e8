"""Long lists on an event loop: some elements at a time, and others are served in between."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

_Item = TypeVar("_Item")


async def in_slices(items: Iterable[_Item], length: int) -> AsyncIterator[list[_Item]]:
    """Slices of `length` items. Other tasks run between slices, so shared state may change there."""
    iterator = iter(items)
    while together := list(islice(iterator, length)):
        yield together
        await asyncio.sleep(0)
