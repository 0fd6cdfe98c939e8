"""Follows the image of another broker, which is the controller: asks for what comes behind the image that is here.

A long poll: the answer comes with the next change, or after `POLL_SECONDS` without one, so that each end knows that the
other one lives. Answers of a controller that was deposed meanwhile (an older epoch than the image's) are not taken.

A whole image is long: the event loop serves others while it is read.
"""

import logging
from typing import Final

from barnabas.controller.broker_link import BrokerLink
from barnabas.controller.history import ImageHistory, Place
from barnabas.controller.image_message import changes_in
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError, MalformedResponse
from barnabas.wire.messages import Message
from barnabas.wire.primitives import UNREADABLE
from barnabas.wire.steps import finish_in_turns

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 10.0
"""Beyond the time that was asked for: a whole image may be long."""
_STEPS_TOGETHER: Final = 16
"""A step is a topic, or a block of some hundred partitions."""


async def fetch_image(
    link: BrokerLink, version: int, history: ImageHistory, broker_id: int, broker_epoch: int, poll_seconds: float
) -> None:
    """Takes over what the controller has behind this image, or everything. NOT_CONTROLLER from one that is not it."""
    since, asked_from = history.place, history.place_in(version)
    values = {
        "broker_id": broker_id,
        "broker_epoch": broker_epoch,
        "controller_epoch": asked_from.controller_epoch,
        "position": asked_from.position,
        "max_wait_ms": int(poll_seconds * 1000),
    }
    answer = await link.ask(ApiKey.FETCH_IMAGE, version, values, poll_seconds + _ANSWER_SECONDS)
    code = ErrorCode(answer.error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"{link.name} does not tell the image of the cluster")
    await take_answer(history, since, answer, version)


async def take_answer(history: ImageHistory, since: Place, answer: Message, version: int) -> None:
    """What was asked for behind a place. It is dropped when the image has moved on meanwhile."""
    place = Place(answer.controller_epoch, answer.position)
    if _is_late(history, since, place) or (place == since and not answer.is_whole):
        return
    try:
        changes = await finish_in_turns(changes_in(answer), _STEPS_TOGETHER)
    except UNREADABLE as problem:
        raise MalformedResponse(f"the image of the cluster cannot be read: {problem}") from None
    if answer.is_whole:
        image = await finish_in_turns(history.image.replaced_by(changes), _STEPS_TOGETHER)
    else:
        image, changes = await finish_in_turns(history.image.follow_in_steps(changes), _STEPS_TOGETHER)
    if _is_late(history, since, place):
        return
    if answer.is_whole:
        history.restart(place, image, version)
    else:
        history.follow(since, place, image, changes, version)


def _is_late(history: ImageHistory, since: Place, place: Place) -> bool:
    return place.controller_epoch < history.place.controller_epoch or history.place != since
