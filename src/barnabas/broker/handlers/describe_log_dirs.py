"""DescribeLogDirs, versions 1 to 5: the log directories, how full they are, and which partitions lie there.

No topics in the request (null) mean all. A directory that is offline is told with KAFKA_STORAGE_ERROR. Partitions are
not moved between directories, so there are no future replicas; `offset_lag` is what is not committed yet.
"""

import asyncio
import shutil
from collections.abc import Iterable
from typing import Any, Final

from barnabas.base.ids import TopicPartition
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.storage.directory import LogDirectory
from barnabas.storage.log import Log
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import decode_request

_UNKNOWN_BYTES: Final = -1


class DescribeLogDirsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request) -> Values:
        asked = decode_request(ApiKey.DESCRIBE_LOG_DIRS, request.version, request.body)
        if not self._services.allows_cluster(request, Operation.DESCRIBE):
            return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "results": []}
        wanted = (
            None if asked.topics is None else {(one.topic, index) for one in asked.topics for index in one.partitions}
        )
        results = [await self._describe(directory, wanted) for directory in self._services.logs.directories]
        return {"throttle_time_ms": request.throttle_ms, "error_code": ErrorCode.NONE, "results": results}

    async def _describe(self, directory: LogDirectory, wanted: set[tuple[str, int]] | None) -> Values:
        if not directory.is_online:
            return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "log_dir": directory.path, "topics": []}
        total, usable = await asyncio.get_running_loop().run_in_executor(
            self._services.workers, _capacity, directory.path
        )
        logs = [log for name, log in directory.logs.items() if wanted is None or name in wanted]
        return {
            "error_code": ErrorCode.NONE,
            "log_dir": directory.path,
            "topics": _by_topic(logs),
            "total_bytes": total,
            "usable_bytes": usable,
            "is_cordoned": directory.path in self._services.settings.log_manager_config.cordoned_log_dirs,
        }


def _capacity(path: str) -> tuple[int, int]:
    try:
        usage = shutil.disk_usage(path)
    except OSError:  # the next write says what is wrong, and takes the directory offline
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES
    return usage.total, usage.free


def _by_topic(logs: Iterable[Log]) -> list[Values]:
    topics: dict[str, list[Any]] = {}
    for log in logs:
        name: TopicPartition = log.partition
        topics.setdefault(name.topic, []).append(
            {
                "partition_index": name.partition,
                "partition_size": log.size_bytes,
                "offset_lag": max(0, log.end_offset - log.high_watermark),
            }
        )
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
