"""DescribeLogDirs, versions 1 to 5: the log directories, how full they are, and which partitions lie there.

- From version 3 there is an error for the whole answer; before, an unauthorized client gets no directories. Version 4
  adds a directory's total and usable bytes, version 5 whether it is cordoned.
- No topics in the request (null) mean all. An offline directory has KAFKA_STORAGE_ERROR. `offset_lag` is what is not
  committed yet.
- Directories that are set aside as `-stray` are told in tagged fields of ours (`wire.log_directory_messages`).
- Not here: partitions are not moved between directories, so there are no future replicas.
"""

import asyncio
import shutil
from collections.abc import Iterable
from typing import Final

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.storage.directories.directory import LogDirectory
from barnabas.storage.log.log import Log
from barnabas.wire.errors import ErrorCode
from barnabas.wire.log_directory_messages import STRAYS_NAMED_MAX
from barnabas.wire.request_views import DescribableLogDirTopic, DescribeLogDirsRequest

_UNKNOWN_BYTES: Final = -1


class DescribeLogDirsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: DescribeLogDirsRequest) -> Values:
        if not self._services.allows_cluster(request, Operation.DESCRIBE):
            return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "results": []}
        wanted = None if asked.topics is None else await self._wanted(asked.topics)
        results = [await self._describe(directory, wanted) for directory in self._services.logs.directories]
        return {"error_code": ErrorCode.NONE, "results": results}

    async def _wanted(self, topics: Iterable[DescribableLogDirTopic]) -> set[tuple[str, int]]:
        named = ((topic.topic, index) for topic in topics for index in topic.partitions)
        return {one async for one in self._services.slices.each(named)}

    async def _describe(self, directory: LogDirectory, wanted: set[tuple[str, int]] | None) -> Values:
        if not directory.is_online:
            return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "log_dir": directory.path, "topics": []}
        total, usable = await asyncio.get_running_loop().run_in_executor(
            self._services.workers, _capacity, directory.path
        )
        by_topic: dict[str, list[Log]] = {}
        async for name, log in self._services.slices.each(tuple(directory.logs.items())):
            if wanted is None or name in wanted:
                by_topic.setdefault(name.topic, []).append(log)
        return {
            "error_code": ErrorCode.NONE,
            "log_dir": directory.path,
            "topics": ({"name": topic, "partitions": map(_view, logs)} for topic, logs in by_topic.items()),
            "total_bytes": total,
            "usable_bytes": usable,
            "is_cordoned": directory.path in self._services.settings.log_manager_config.cordoned_log_dirs,
            "stray_count": len(directory.strays),
            "strays": sorted(directory.strays)[:STRAYS_NAMED_MAX],
        }


def _capacity(path: str) -> tuple[int, int]:
    try:
        usage = shutil.disk_usage(path)
    except OSError:  # the next write says what is wrong, and takes the directory offline
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES
    return usage.total, usage.free


def _view(log: Log) -> Values:
    return {
        "partition_index": log.partition.partition,
        "partition_size": log.size_bytes,
        "offset_lag": max(0, log.end_offset - log.high_watermark),
    }
