"""Tells the controller which replicas of this broker are offline, so that others lead and are in sync instead.

```
a directory fails ─┐
a new registration ├─▶ look through the image ─▶ what it does not know is reported ─▶ the image says so: done
the image changes ─┘             ▲                                                 └─ not yet: again, a moment later
```

A replica is offline when this broker has no usable log of it and one of its directories has failed, now or before the
start: what lay there is not known then. The image keeps what was reported, for this registration, so a new controller
need not be told again; if it lacks something all the same, this notices. Without a failed directory nothing is done.

Owner: the broker's event loop.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.pausing import in_slices
from barnabas.controller.offline_replicas import report_offline_replicas
from barnabas.controller.seat import ControllerSeat
from barnabas.metadata.image import ClusterImage
from barnabas.replication.replicas import Replicas
from barnabas.storage.directories.manager import LogManager

logger = logging.getLogger(__name__)

_LOOKED_AT_TOGETHER: Final = 500
_REPORTED_TOGETHER_MAX: Final = 5_000
_AGAIN_SECONDS: Final = 0.5
_FAILURES_TOLD: Final = 20


class OfflineReplicas:
    def __init__(self, seat: ControllerSeat, replicas: Replicas, logs: LogManager) -> None:
        self._seat = seat
        self._replicas = replicas
        self._logs = logs
        self._is_due = asyncio.Event()

    def look(self) -> None:
        """Something has changed that replicas are offline by, or that the controller knows of them."""
        if self._logs.offline_directories:
            self._is_due.set()

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """The image is another one."""
        if new.topics is not old.topics or new.controller_id != old.controller_id:
            self.look()

    async def run(self) -> None:
        """Until it is cancelled."""
        failures = 0
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            unknown = await self._unknown() if self._seat.broker_epoch >= 0 else []
            if unknown:
                failures = await self._report(unknown, failures)
                self._is_due.set()  # until the image says so
            await asyncio.sleep(_AGAIN_SECONDS)  # not all partitions for every change of the image

    async def _report(self, unknown: Sequence[tuple[UUID, int]], failures: int) -> int:
        """Returns how often it has failed, one time after the other."""
        if not failures:
            logger.warning("replicas in failed log directories: %d; the controller is told", len(unknown))
        try:
            async for together in in_slices(unknown, _REPORTED_TOGETHER_MAX):
                await report_offline_replicas(self._seat, together)
        except BarnabasError as error:
            if failures + 1 == _FAILURES_TOLD:  # before, there may just be no controller for a moment
                logger.warning("the controller is not told which replicas are offline: %s", error)
            return failures + 1
        return 0

    async def _unknown(self) -> list[tuple[UUID, int]]:
        """Replicas that are offline, and not so by the image."""
        found: list[tuple[UUID, int]] = []
        async for together in in_slices(self._assigned(), _LOOKED_AT_TOGETHER):
            found += [
                (topic_id, name.partition) for name, topic_id in together if self._replicas.is_offline(name, topic_id)
            ]
        return found

    def _assigned(self) -> Iterator[tuple[TopicPartition, UUID]]:
        broker_id, epoch = self._seat.broker_id, self._seat.broker_epoch
        for topic in self._replicas.image.topics.values():  # the image that is served: its logs were created
            coming = self._replicas.coming.topic_by_id(topic.id)
            for one in topic.partitions if coming is None else coming.partitions[: len(topic.partitions)]:
                if broker_id in one.replicas and not one.is_offline_in(broker_id, epoch):
                    yield TopicPartition(topic.name, one.index), topic.id
