"""All brokers of a cluster see one history of it: that of the controllers, one for each epoch.

An image has a place in that history. Two brokers that are at the same place have the same image, and one that is told
of it goes only forward.
"""

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.sim.histories.events import Happened, History, ImageSeen


class _Place(NamedTuple):
    controller_epoch: int
    position: int


def check_images(history: History) -> Iterator[str]:
    contents: dict[_Place, ImageSeen] = {}
    controllers: dict[int, ImageSeen] = {}
    newest: dict[str, _Place] = {}
    for event in history.events:
        if isinstance(event, Happened) and event.what == "start":
            newest.pop(event.client, None)  # the next life begins with what it is told, or reads
        if not isinstance(event, ImageSeen):
            continue
        place = _Place(event.controller_epoch, event.position)
        if place.controller_epoch < 0:
            continue  # read from the store, before there was a controller to follow
        same = contents.setdefault(place, event)
        if same.checksum != event.checksum:
            yield (
                f"{event.client} has another image at {place} ({event.at:.3f} s) than {same.client} ({same.at:.3f} s)"
            )
        elected = controllers.setdefault(place.controller_epoch, event)
        if elected.controller_id != event.controller_id:
            yield (
                f"epoch {place.controller_epoch} has two controllers: {elected.controller_id} ({elected.client}, "
                f"{elected.at:.3f} s) and {event.controller_id} ({event.client}, {event.at:.3f} s)"
            )
        before = newest.get(event.client)
        if before is not None and place < before:
            yield f"{event.client} went back from {before} to {place} at {event.at:.3f} s"
        newest[event.client] = place
