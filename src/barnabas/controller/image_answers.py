"""What the controller answers to FetchImage.

| the broker's image | the answer |
|---|---|
| is behind, at a place that the history knows | the changes since |
| is the newest one | nothing, until there is a change, or as long as the broker wants to wait |
| is of another history, or missing | the whole image, as soon as the controller has read the tree |

Hundreds of brokers ask at the same place, so an answer is encoded once for each place and version, and kept until the
next change. A whole image, or very many changes, are long: the event loop serves others while they are encoded.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from barnabas.controller.controller import Controller
from barnabas.controller.history import Place, weight_of
from barnabas.controller.image_message import values_of, whole_values_of
from barnabas.metadata.image import Change, ClusterImage
from barnabas.wire.image_messages import FETCH_IMAGE_RESPONSES
from barnabas.wire.steps import Steps, finish, finish_in_turns
from barnabas.wire.values import EncodedMessage, write_values_in_steps

_KEPT_MAX: Final = 64
_WEIGHT_AT_ONCE_MAX: Final = 64
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
        self._kept: dict[_Key, bytes | asyncio.Future[bytes]] = {}
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
            return bytes(finish(self._encoding(version, since, is_whole=False, arrays=values_of(()))))
        key = _Key(version, None if changes is None else since)
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= _KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[key] = self._encoded(version, changes)
        return kept if isinstance(kept, bytes) else await asyncio.shield(kept)  # others may wait for it, too

    def _encoded(self, version: int, changes: Sequence[Change] | None) -> bytes | asyncio.Future[bytes]:
        """At once, if it is short. None is the whole image."""
        is_whole = changes is None
        arrays = whole_values_of(self._history.image) if changes is None else values_of(changes)
        steps = self._encoding(version, self._history.place, is_whole=is_whole, arrays=arrays)
        if changes is not None and weight_of(changes) <= _WEIGHT_AT_ONCE_MAX:
            return bytes(finish(steps))
        return asyncio.ensure_future(_bytes_in_turns(steps))

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

    def _encoding(
        self, version: int, place: Place, *, is_whole: bool, arrays: Mapping[str, Any]
    ) -> Steps[EncodedMessage]:
        values = {
            **arrays,
            "controller_id": self._controller.controllership.broker_id,
            "controller_epoch": place.controller_epoch,
            "position": place.position,
            "is_whole": is_whole,
        }
        return write_values_in_steps(FETCH_IMAGE_RESPONSES[version], values)


async def _bytes_in_turns(steps: Steps[EncodedMessage]) -> bytes:
    return bytes(await finish_in_turns(steps, _STEPS_TOGETHER))


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
