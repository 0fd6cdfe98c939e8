"""Topics that the broker creates by itself: the controller writes them, so another broker has to ask it."""

from collections.abc import Mapping
from typing import Final

from barnabas.controller.seat import ControllerSeat
from barnabas.metadata.image import ClusterImage
from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError

_VERSION: Final = ALL_APIS[ApiKey.CREATE_TOPICS].version_max
_TIMEOUT_SECONDS: Final = 10.0


class TopicCreation:
    """Owner: the broker's event loop."""

    def __init__(self, seat: ControllerSeat) -> None:
        self._seat = seat

    async def create(
        self,
        image: ClusterImage,
        name: str,
        partition_count: int,
        replication_factor: int,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """A new topic. The errors are those of CreateTopics; NOT_CONTROLLER while nobody is the controller."""
        link = self._seat.link
        if link is None:
            topics = self._seat.require_controller().topics
            await topics.create(topics.plan(image, name, partition_count, replication_factor, configs))
            return
        topic = {
            "name": name,
            "num_partitions": partition_count,
            "replication_factor": replication_factor,
            "assignments": (),
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        asked = {"topics": [topic], "timeout_ms": int(_TIMEOUT_SECONDS * 1000), "validate_only": False}
        answer = await link.ask(ApiKey.CREATE_TOPICS, _VERSION, asked, 2 * _TIMEOUT_SECONDS)
        [created] = answer.topics
        code = ErrorCode.of(created.error_code.value)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, created.error_message or code.name)
