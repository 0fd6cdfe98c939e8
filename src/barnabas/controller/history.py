"""An image of the cluster together with how it came about, so that others can be told what they lack.

```
controller   image ── changes ──▶ image ── changes ──▶ image        each has a place: (controller epoch, position)
                └── since(place of a broker) ──▶ the changes behind it, in order; None: too far behind
```

Every broker keeps one. While it follows a controller it takes over that one's places (`follow`). When it is elected
itself it goes on from there in its own epoch (`begin_epoch`), so that brokers that were as far as it was need no whole
image; one that knows of a place that the new controller never saw does.

Old steps are dropped when they hold many changes: an image that is whole is shorter then.

While brokers of an older version are in the cluster, an image may come by an older version of FetchImage, and lack what
that does not tell. No later change brings it, so a broker asks from nowhere when it can ask in a newer version again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.controller.watcher import ImageListener
from barnabas.metadata.image import Change, ClusterImage, ControllerChanged, PartitionsChanged, TopicChanged
from barnabas.wire.apis import ALL_APIS, ApiKey

NEWEST_VERSION: Final = ALL_APIS[ApiKey.FETCH_IMAGE].version_max
"""Of FetchImage: it tells everything that an image has."""

WEIGHT_MAX: Final = 50_000
"""Of all steps that are kept (`weight_of`)."""


class Place(NamedTuple):
    """How far an image has come."""

    controller_epoch: int
    position: int


NOWHERE: Final = Place(-1, -1)
"""Of a broker that has no image, or has read one from the store: nobody's changes lead on from there."""


class _Step(NamedTuple):
    before: Place
    after: Place
    changes: tuple[Change, ...]
    weight: int


class ImageHistory:
    """Owner: the broker's event loop."""

    def __init__(self, weight_max: int = WEIGHT_MAX) -> None:
        self.image = ClusterImage()
        self.place = NOWHERE
        self.version = NEWEST_VERSION
        """The oldest version of FetchImage that this image came by: what that does not tell may be missing."""
        self._listeners: list[ImageListener] = []
        self._steps: deque[_Step] = deque()
        self._weight = 0
        self._weight_max = weight_max

    def subscribe(self, listener: ImageListener) -> None:
        """Called with each image and the one before it, in order; it must neither block nor raise."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: ImageListener) -> None:
        self._listeners.remove(listener)

    async def wait_for(self, predicate: Callable[[ClusterImage], bool]) -> ClusterImage:
        """The first image, from now on, for which the predicate holds."""
        if predicate(self.image):
            return self.image
        found: asyncio.Future[ClusterImage] = asyncio.get_running_loop().create_future()

        def look(_: ClusterImage, image: ClusterImage) -> None:
            if not found.done() and predicate(image):
                found.set_result(image)

        self.subscribe(look)
        try:
            return await found
        finally:
            self.unsubscribe(look)

    # -- as the controller -----------------------------------------------------------------------------------------

    def begin_epoch(self, controller_epoch: int, controller_id: int) -> None:
        """This broker is the controller now, and what it publishes next follows what it has."""
        assert controller_epoch > self.place.controller_epoch, f"{controller_epoch} is not newer than {self.place}"
        self._take(Place(controller_epoch, 0), *self.image.follow([ControllerChanged(controller_id)]))

    def publish(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        """The next image, and the changes that made it of the one that there is (`ClusterImage.follow`)."""
        self._take(Place(self.place.controller_epoch, self.place.position + 1), image, changes)

    def complete(self) -> None:
        """Everything that the store has is in this image."""
        self.version = NEWEST_VERSION

    # -- as a follower ---------------------------------------------------------------------------------------------

    def place_in(self, version: int) -> Place:
        """The place to ask from in this version of FetchImage: nowhere, if the image lacks what the version tells."""
        return self.place if version <= self.version else NOWHERE

    def follow(
        self,
        before: Place,
        after: Place,
        image: ClusterImage,
        changes: Sequence[Change],
        version: int = NEWEST_VERSION,
    ) -> None:
        """What the controller said, in some version, comes behind the place that this image has."""
        assert before == self.place, f"changes behind {before} do not follow {self.place}"
        self.version = min(self.version, version)
        self._take(after, image, changes)

    def restart(self, place: Place, image: ClusterImage, version: int = NEWEST_VERSION) -> None:
        """A whole image takes the place of this one (`ClusterImage.replaced_by`)."""
        self.version = version
        self._steps.clear()
        self._weight = 0
        self._move(place, image)

    # -- for those who follow --------------------------------------------------------------------------------------

    def since(self, place: Place) -> Sequence[Change] | None:
        """Everything behind a place, in order; None when only the whole image helps."""
        if place == NOWHERE:
            return None
        if place == self.place:
            return ()
        changes: list[tuple[Change, ...]] = []
        for step in reversed(self._steps):
            changes.append(step.changes)
            if step.before == place:
                return [change for one in reversed(changes) for change in one]
        return None

    def _take(self, after: Place, image: ClusterImage, changes: Sequence[Change]) -> None:
        if not changes and after.controller_epoch == self.place.controller_epoch:
            return
        step = _Step(self.place, after, tuple(changes), weight_of(changes))
        self._steps.append(step)
        self._weight += step.weight
        while self._weight > self._weight_max:
            self._weight -= self._steps.popleft().weight
        self._move(after, image)

    def _move(self, place: Place, image: ClusterImage) -> None:
        old, self.image, self.place = self.image, image, place
        if image is not old:
            for listener in list(self._listeners):
                listener(old, image)


def weight_of(changes: Iterable[Change]) -> int:
    """One for each partition, broker or config that changed."""
    return sum(map(_weight_of, changes))


def _weight_of(change: Change) -> int:
    match change:
        case TopicChanged(topic):
            return 1 + len(topic.partitions)
        case PartitionsChanged(partitions=partitions):
            return 1 + len(partitions)
        case _:
            return 1
