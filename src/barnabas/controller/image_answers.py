"""What the controller answers to FetchImage.

| the broker's image | the answer |
|---|---|
| is behind, at a place that the history knows | the changes since |
| is the newest one | nothing, until there is a change, or as long as the broker wants to wait |
| is of another history, or missing | the whole image, as soon as the controller has read the tree |

Hundreds of brokers ask at the same place, so an answer is encoded once for each place and version, and kept until the
next change. A whole image is long: the event loop serves others while it is encoded.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from barnabas.controller.controller import Controller
from barnabas.controller.history import Place
from barnabas.controller.image_message import values_of, whole_values_of
from barnabas.metadata.image import ClusterImage
from barnabas.wire.image_messages import FETCH_IMAGE_RESPONSES
from barnabas.wire.steps import finish_in_turns
from barnabas.wire.values import write_values_in_steps

_KEPT_MAX: Final = 64
_STEPS_TOGETHER: Final = 8
"""A step is a topic, or a block of some hundred partitions."""


class _Key(NamedTuple):
    version: int
    since: Place | None
    """None: the whole image."""


class ImageAnswers:
    """Owner: the event loop of the broker that is the controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._history = controller.history
        self._kept: dict[_Key, asyncio.Task[bytes]] = {}
        self._changed = asyncio.Event()
        self._is_closed = False
        self._history.subscribe(self._image_changed)

    def close(self) -> None:
        """Who waits is answered with what there is."""
        self._is_closed = True
        self._history.unsubscribe(self._image_changed)
        self._image_changed(self._history.image, self._history.image)

    async def answer(self, version: int, since: Place, max_wait_seconds: float) -> bytes:
        """The body of the response."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max_wait_seconds):
                await self._until_there_is_something(since)
        changes = self._history.since(since)
        if changes is None and not self._controller.is_whole.is_set():
            return await self._encoded(version, since, is_whole=False, arrays=values_of(()))
        key = _Key(version, None if changes is None else since)
        encoding = self._kept.get(key)
        if encoding is None:
            if len(self._kept) >= _KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            arrays = whole_values_of(self._history.image) if changes is None else values_of(changes)
            encoded = self._encoded(version, self._history.place, is_whole=changes is None, arrays=arrays)
            encoding = self._kept[key] = asyncio.ensure_future(encoded)
        return await asyncio.shield(encoding)  # others may wait for it, too

    async def _until_there_is_something(self, since: Place) -> None:
        is_whole = self._controller.is_whole
        while not self._is_closed:
            changed = self._changed
            changes = self._history.since(since)
            if changes is None:
                if is_whole.is_set():
                    return
                await _first_of(changed, is_whole)
            elif changes or self._history.place != since:
                return
            else:
                await changed.wait()

    def _image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        self._kept.clear()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _encoded(self, version: int, place: Place, *, is_whole: bool, arrays: Mapping[str, Any]) -> bytes:
        values = {
            **arrays,
            "controller_id": self._controller.controllership.broker_id,
            "controller_epoch": place.controller_epoch,
            "position": place.position,
            "is_whole": is_whole,
        }
        steps = write_values_in_steps(FETCH_IMAGE_RESPONSES[version], values)
        return bytes(await finish_in_turns(steps, _STEPS_TOGETHER))


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
