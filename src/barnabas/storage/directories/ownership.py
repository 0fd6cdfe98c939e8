"""Which topic each directory in a log directory belongs to: reads the topic ids, and sets aside what is not served.

`strays` has the rules. A directory that is not served is renamed before anything in it is looked at:
to `-delete` when the metadata says that its topic was deleted, else to `-stray`, which nobody removes. A stray whose
topic was deleted meanwhile is removed; one whose id the metadata has again, because it was restored, is served again.
A directory that holds no log and belongs to no partition of the metadata is not ours: it keeps its name.

The functions are for worker threads; `Ownership` belongs to the log manager's thread.
Crash: a rename is lost or done; a lost one is repeated at the next start. Code that relies on it syncs first.
"""

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from barnabas.base.errors import DiskFailed, DiskFull
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import new_uuid
from barnabas.storage.checkpoints import (
    PARTITION_METADATA,
    CorruptCheckpoint,
    read_partition_metadata,
    write_partition_metadata,
)
from barnabas.storage.directories.directory import (
    LogDirectory,
    UnusableDirectory,
    doomed_name,
    partition_set_aside,
    stray_name,
)
from barnabas.storage.directories.recognition import holds_log
from barnabas.storage.directories.strays import Fate, KnownPartitions

logger = logging.getLogger(__name__)

OnDoomed: TypeAlias = Callable[[LogDirectory, str], None]
"""Told of a directory that must be removed."""

_STRAYS_NAMED_MAX: Final = 20


class SetAside(NamedTuple):
    """A partition's directory that is not served, under its new name."""

    name: str
    fate: Fate
    topic_id: UUID | None = None


class Owner(NamedTuple):
    """Who a directory belongs to, and whether it says so itself."""

    fate: Fate
    topic_id: UUID | None
    is_written: bool


def read_topic_id(files: FileSystem, path: str) -> UUID | None:
    """The topic id in a partition's directory; None also when it cannot be read."""
    try:
        return read_partition_metadata(files, os.path.join(path, PARTITION_METADATA))
    except CorruptCheckpoint as problem:
        logger.warning("the topic id is not known: %s", problem)
        return None


def write_topic_id(files: FileSystem, path: str, topic_id: UUID) -> None:
    """Gives a directory the id that the metadata has for it. On a full disk the next start does."""
    with suppress(DiskFull):
        write_partition_metadata(files, os.path.join(path, PARTITION_METADATA), topic_id)


def set_aside(
    files: FileSystem,
    random: Random,
    directory: LogDirectory,
    partition: TopicPartition,
    fate: Fate,
    topic_id: UUID | None,
) -> SetAside:
    """Renames the directory of a partition that is not served."""
    name = (doomed_name if fate is Fate.DELETED else stray_name)(partition, new_uuid(random))
    files.rename(directory.path_of(partition), directory.file(name))
    return SetAside(name, fate, topic_id)


class Ownership:
    """What one opening knows of the owners of directories."""

    def __init__(self, files: FileSystem, random: Random, known: KnownPartitions | None, on_doomed: OnDoomed) -> None:
        """Without `known`, every directory is served whose name is that of a partition."""
        self._files = files
        self._random = random
        self._known = known
        self._on_doomed = on_doomed
        self._rivalled: set[tuple[str, TopicPartition]] = set()
        """Directories whose partition another directory holds, by its topic id."""
        self._renamed: set[str] = set()
        """Log directories with a rename that is not durable yet."""
        self.strays: list[str] = []

    # -- before anything is opened -------------------------------------------------------------------------------

    def is_strangers(self, directory: LogDirectory, partition: TopicPartition) -> bool:
        """Whether a directory only has the name of a partition, such as `photos-2024`."""
        if self._known is None or self._known.id_of(partition) is not None:
            return False
        return not holds_log(self._files, directory.path_of(partition))

    def settle_rivals(self, partitions: Mapping[LogDirectory, list[TopicPartition]]) -> None:
        """Of several directories of one partition the topic ids tell whose it is; if they do not, that is refused."""
        places: dict[TopicPartition, list[LogDirectory]] = {}
        for directory, listed in partitions.items():
            for partition in listed:
                places.setdefault(partition, []).append(directory)
        for partition, rivals in places.items():
            if len(rivals) > 1:
                self._settle(partition, rivals)

    def _settle(self, partition: TopicPartition, rivals: list[LogDirectory]) -> None:
        ids: dict[str, UUID | None] = {}
        for directory in rivals:
            with suppress(DiskFailed):  # which opening it will report; such a disk claims nothing
                ids[directory.path] = read_topic_id(self._files, directory.path_of(partition))
        claimants = list(ids) if self._known is None else self._known.claimants(partition, ids)
        if len(claimants) > 1:
            raise UnusableDirectory(
                f"{partition} is both in {claimants[0]} and in {claimants[1]}: move the unwanted one elsewhere"
            )
        self._rivalled.update((one.path, partition) for one in rivals if one.path not in claimants)

    def is_rivalled(self, directory: LogDirectory, partition: TopicPartition) -> bool:
        return (directory.path, partition) in self._rivalled

    def review_strays(
        self, directory: LogDirectory, names: list[str], partitions: Mapping[LogDirectory, list[TopicPartition]]
    ) -> None:
        """Looks again at what was set aside before. What is served again is added to the directory's partitions."""
        for name in names:
            partition, topic_id = partition_set_aside(name), read_topic_id(self._files, directory.file(name))
            fate = self._fate_of_stray(partition, topic_id, partitions)
            if partition is None or fate is Fate.STRAY:
                self._note_stray(directory, name, topic_id)
                continue
            path = directory.path_of(partition)
            if fate is Fate.DELETED:
                path = directory.file(doomed_name(partition, new_uuid(self._random)))
            self._files.rename(directory.file(name), path)
            directory.sync_names()
            if fate is Fate.DELETED:
                self._on_doomed(directory, path)
            else:
                partitions[directory].append(partition)
                logger.warning("%s is served again: the metadata has its topic id", path)

    def _fate_of_stray(
        self,
        partition: TopicPartition | None,
        topic_id: UUID | None,
        partitions: Mapping[LogDirectory, list[TopicPartition]],
    ) -> Fate:
        """Only the exact id brings a directory back, and only where no other one has taken its place."""
        if self._known is None or partition is None or topic_id is None:
            return Fate.STRAY
        is_taken = any(partition in listed for listed in partitions.values())
        if topic_id == self._known.id_of(partition):
            return Fate.STRAY if is_taken else Fate.SERVED
        return Fate.DELETED if topic_id in self._known.deleted_ids else Fate.STRAY

    # -- while logs are opened -----------------------------------------------------------------------------------

    def owner_of(self, directory: LogDirectory, partition: TopicPartition) -> Owner:
        """Reads a directory's id and decides. For a worker thread."""
        stored_id = read_topic_id(self._files, directory.path_of(partition))
        if self._known is None:
            return Owner(Fate.SERVED, stored_id, is_written=True)
        fate = self._known.fate_of(partition, stored_id, is_rivalled=self.is_rivalled(directory, partition))
        if fate is not Fate.SERVED:
            return Owner(fate, stored_id, is_written=True)
        wanted_id = self._known.id_of(partition)
        return Owner(fate, wanted_id, is_written=stored_id == wanted_id)

    def take_aside(self, directory: LogDirectory, partition: TopicPartition, aside: SetAside) -> None:
        """A directory was renamed by `set_aside`."""
        directory.dismiss(partition)
        directory.topic_ids.pop(partition, None)
        self._renamed.add(directory.path)
        if aside.fate is Fate.DELETED:
            logger.info("%s: its topic was deleted, its files will be removed", directory.path_of(partition))
            self._on_doomed(directory, directory.file(aside.name))
        else:
            self._note_stray(directory, aside.name, aside.topic_id)

    def make_durable(self, directory: LogDirectory) -> None:
        """Before anything is made in the place of what was renamed."""
        if directory.path in self._renamed:
            directory.sync_names()
            self._renamed.discard(directory.path)

    def _note_stray(self, directory: LogDirectory, name: str, topic_id: UUID | None) -> None:
        directory.strays[name] = topic_id
        path = directory.file(name)
        self.strays.append(path)
        if len(self.strays) <= _STRAYS_NAMED_MAX:
            logger.warning("%s is kept, but not served: the metadata does not have its topic id", path)
        elif len(self.strays) == _STRAYS_NAMED_MAX + 1:
            logger.warning("more directories are kept, but not served; their names end in -stray")
