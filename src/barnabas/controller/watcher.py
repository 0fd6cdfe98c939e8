"""Keeps the image of the cluster up to date: the way by which topics, configs and leaders reach a broker.

```
store's watches ──> paths that are due ──> ClusterReader ──> changes ──> next image ──> subscribers
```

The watches only note paths. `run` reads them again, all that have come meanwhile together, so that a burst costs one
image. Subscribers get every image, in order, each with the one before it; they are called on the event loop, must not
block or raise, and hand longer work to a task of their own.

`load` before `run`. When the session was suspended its watches are gone, so everything is read again once it is
connected. `run` goes on until it is cancelled: the owner of a session that is lost does that, and starts anew.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from barnabas.metadata.errors import SessionLost
from barnabas.metadata.image import Change, ClusterImage
from barnabas.metadata.reader import ROOT_PATHS, ClusterReader
from barnabas.metadata.store import MetadataStore, SessionState, WatchEvent
from barnabas.wire.steps import finish_in_turns

_log: Final = logging.getLogger(__name__)

_STEPS_TOGETHER: Final = 64
"""Topics that are compared before others have their turn."""

ImageListener: TypeAlias = Callable[[ClusterImage, ClusterImage], None]
"""Called with the old and the new image."""


class MetadataWatcher:
    def __init__(
        self,
        store: MetadataStore,
        image: ClusterImage | None = None,
        on_changes: Callable[[ClusterImage, Sequence[Change]], None] = lambda image, changes: None,
    ) -> None:
        """An image that is known already is compared with what is read.

        `on_changes` gets each image, with the changes that made it of the one before, in order.
        """
        self._store = store
        self._reader = ClusterReader(store, self._note)
        self._image = image or ClusterImage()
        self._on_changes = on_changes
        self._paths_due: dict[str, None] = {}
        self._is_due = asyncio.Event()
        self._listeners: list[ImageListener] = []
        self._waiting: list[tuple[Callable[[ClusterImage], bool], asyncio.Future[ClusterImage]]] = []
        self._ended: SessionLost | None = None
        self._follows_session = False
        self._has_lost_watches = False

    @property
    def image(self) -> ClusterImage:
        return self._image

    def subscribe(self, listener: ImageListener) -> None:
        self._listeners.append(listener)

    def unsubscribe(self, listener: ImageListener) -> None:
        self._listeners.remove(listener)

    async def load(self) -> ClusterImage:
        """Reads everything, and tells those who have subscribed already."""
        self._follow_session()
        self._paths_due.update(dict.fromkeys(ROOT_PATHS))
        await self._refresh()
        return self._image

    async def run(self) -> None:
        """Follows the store until cancelled."""
        self._follow_session()
        try:
            while True:
                await self._is_due.wait()
                self._is_due.clear()
                try:
                    await self._refresh()
                except SessionLost as error:
                    _log.warning("the image of the cluster is not updated until the metadata store is back: %s", error)
        finally:
            self._store.remove_session_listener(self._session_changed)
            self._ended = SessionLost("the metadata store is no longer followed")
            self._release_waiting(self._ended)

    async def wait_for(self, predicate: Callable[[ClusterImage], bool]) -> ClusterImage:
        """The first image, from now on, for which the predicate holds. `SessionLost` when `run` ends before."""
        if predicate(self._image):
            return self._image
        if self._ended is not None:
            raise self._ended
        answer: asyncio.Future[ClusterImage] = asyncio.get_running_loop().create_future()
        entry = (predicate, answer)
        self._waiting.append(entry)
        try:
            return await answer
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def _note(self, event: WatchEvent) -> None:
        self._paths_due[event.path] = None
        self._is_due.set()

    def _follow_session(self) -> None:
        """From the first read on: its watches may be gone before `run` starts."""
        if not self._follows_session:
            self._follows_session = True
            self._store.add_session_listener(self._session_changed)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._has_lost_watches = True
            self._paths_due.update(dict.fromkeys(ROOT_PATHS))
            self._is_due.set()

    async def _refresh(self) -> None:
        while paths := self._paths_due:
            self._paths_due = {}
            if self._has_lost_watches:
                # Not in `_session_changed`: a read that is under way would note what it read before the interruption.
                self._has_lost_watches = False
                self._reader.forget()
            try:
                changes = await self._reader.read(self._image, paths)
            except SessionLost:
                self._paths_due = {**paths, **self._paths_due}
                raise
            self._publish(*await finish_in_turns(self._image.follow_in_steps(changes), _STEPS_TOGETHER))

    def _publish(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        old, self._image = self._image, image
        if image is not old:
            self._on_changes(image, changes)
            for listener in list(self._listeners):
                listener(old, image)
            for predicate, answer in list(self._waiting):
                if not answer.done() and predicate(image):
                    answer.set_result(image)

    def _release_waiting(self, error: SessionLost) -> None:
        for _predicate, answer in self._waiting:
            if not answer.done():
                answer.set_exception(error)
