"""The log directories of a broker together: which one holds a partition, which one takes the next, which ones work.

Owner: the log manager's thread.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from barnabas.base.errors import BarnabasError
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import uuid_text
from barnabas.storage.directories.directory import LogDirectory, partition_set_aside
from barnabas.storage.log.log import Log
from barnabas.storage.settings import LogManagerConfig
from barnabas.wire.errors import ErrorCode, KafkaError


class AllDirectoriesOffline(BarnabasError):  # noqa: N818 - a fact, named as one
    """No log directory is left: the broker cannot go on."""


class LogDirectories:
    """In the order of `log.dirs`."""

    def __init__(self, files: FileSystem, config: LogManagerConfig) -> None:
        self._cordoned = config.cordoned_log_dirs
        self._all = [LogDirectory(files, path) for path in config.log_dirs]

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._all)

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self._all if directory.is_online]

    @property
    def offline(self) -> list[LogDirectory]:
        return [directory for directory in self._all if not directory.is_online]

    @property
    def online_ids(self) -> tuple[UUID, ...]:
        return tuple([one.directory_id for one in self.online if one.directory_id is not None])

    def require_online(self) -> None:
        if not self.online:
            failures = "; ".join(str(directory.failure) for directory in self._all)
            raise AllDirectoriesOffline(f"no log directory is left: {failures}")

    def of(self, partition: TopicPartition) -> LogDirectory | None:
        """Who serves the partition; None when nobody has it, an error when the one who has it cannot serve it."""
        for directory in self._all:
            if partition in directory.logs:
                return directory
            if partition in directory.lost:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} is offline: {directory.failure}")
            if problem := directory.unopened.get(partition):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} cannot be opened: {problem}")
        return None

    def served(self, partition: TopicPartition) -> tuple[LogDirectory, Log]:
        """The partition's log and where it lies; an error when there is none."""
        directory = self.of(partition)
        if directory is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} has no log")
        return directory, directory.logs[partition]

    def get(self, partition: TopicPartition, topic_id: UUID | None) -> Log | None:
        directory = self.of(partition)
        if directory is None:
            return None
        stored_id = directory.topic_ids.get(partition)
        if topic_id is not None and stored_id is not None and stored_id != topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{directory.path_of(partition)} belongs to topic id {uuid_text(stored_id)}, not {uuid_text(topic_id)}",
            )
        return directory.logs[partition]

    def forget_lost(self, partition: TopicPartition) -> None:
        """The partition is deleted: one of the same name may be made in another directory."""
        for directory in self._all:
            directory.lost.discard(partition)

    def holder(self, partition: TopicPartition) -> LogDirectory | None:
        """The directory that has the partition, in service or not, if it can be renamed now."""
        for directory in self.online:
            if partition in directory.logs or partition in directory.unopened:
                return None if partition in directory.reopening else directory
        return None

    def stray_of(self, partition: TopicPartition, topic_id: UUID | None) -> tuple[LogDirectory, str] | None:
        """A directory of this partition that was set aside, by its topic id."""
        for directory in self.online:
            for name, stray_id in directory.strays.items():
                if stray_id is not None and stray_id == topic_id and partition_set_aside(name) == partition:
                    return directory, name
        return None

    def may_hold(self, topic_id: UUID, partitions: Iterable[TopicPartition]) -> bool:
        """Whether files of these partitions of a topic may lie somewhere: in a directory that is offline, all may."""
        if self.offline:
            return True
        return any(one.topic_ids.get(partition) == topic_id for partition in partitions for one in self._all)

    def remember(self, partition: TopicPartition) -> bool:
        """Whether a checkpoint that was found at the start says that the partition had records."""
        return any(
            checkpoint.found.get(partition, 0) > 0
            for one in self._all
            for checkpoint in (one.recovery_points, one.start_offsets, one.high_watermarks)
        )

    def cordon(self, paths: frozenset[str]) -> None:
        """New partitions keep out of these."""
        self._cordoned = paths

    def emptiest(self) -> LogDirectory:
        """Where the next partition goes: the first of those with the fewest, cordoned ones left out."""
        self.require_online()
        usable = [directory for directory in self.online if directory.path not in self._cordoned]
        if not usable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory that is online is cordoned")
        return min(usable, key=lambda directory: directory.partition_count)
