"""Metadata that was lost: told from a first start, and made again from the log directories.

`require_metadata` is the one place that decides, before anything is written: log directories that belong to a cluster,
or hold partitions, but no metadata file beside them mean that the file was lost. A new one would be another cluster, to
which none of these partitions belongs. `rebuild` makes the file from what the directories say
(`barnabas.metadata.rebuild` has the rules); it touches no log, and keeps an old file under another name.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from random import Random

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import NO_EPOCH, NO_PRODUCER, LeaderEpoch, ProducerId, TopicPartition
from barnabas.broker.internal_topics import INTERNAL_TOPIC_CONFIGS
from barnabas.broker.kafka_metadata import (
    UnreadableKafkaMetadata,
    find_metadata_log,
    has_kafka_written,
    note_adoption,
    read_kafka_metadata,
    usable_configs,
    was_adopted,
)
from barnabas.broker.settings import DEFAULT_NODE_ID
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.errors import CorruptMetadata, NewerMetadata
from barnabas.metadata.rebuild import (
    GIVEN_PRODUCER_ID_MAX,
    CannotRebuild,
    FoundLogs,
    FoundPartition,
    RebuiltMetadata,
    rebuild_metadata,
)
from barnabas.metadata.table import FILE_NAME, TAKEN_IN_NAME, SqliteTable, replace_table
from barnabas.storage.checkpoints import (
    CLEANER_OFFSETS,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CorruptCheckpoint,
    read_leader_epochs,
    read_offsets,
    read_partition_metadata,
)
from barnabas.storage.directories.directory import LogDirectory, partition_set_aside
from barnabas.storage.directories.meta_properties import LOCK, META_PROPERTIES, read_meta_properties
from barnabas.storage.directories.recognition import holds_log
from barnabas.storage.producers.producer_snapshot import SNAPSHOT_SUFFIX, CorruptSnapshot, read_snapshot


class MetadataLost(BarnabasError):  # noqa: N818 - a fact about directories, named as one
    """The logs are there, the metadata is not; the message says how to get it back."""


class MetadataReadable(BarnabasError):  # noqa: N818
    """There is nothing to rebuild: the file that is there can be read."""


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """What a rebuilding found and made."""

    path: str
    found: FoundLogs
    metadata: RebuiltMetadata
    notes: list[str]
    """Small files that could not be read, and why."""
    backup: str | None = None
    """Where the old file is now, if there was one."""


def rebuild_command(log_dirs: Sequence[str]) -> str:
    """The command that helps, for messages."""
    return " ".join(["barnabas metadata rebuild", *(f"--data-dir {path}" for path in log_dirs)])


async def open_metadata(files: FileSystem, clock: Clock, log_dirs: Sequence[str]) -> EmbeddedMetadata:
    """The store in the first log directory. `MetadataLost` when it was lost, or cannot be read."""
    require_metadata(files, log_dirs)
    try:
        return await EmbeddedMetadata.open(log_dirs[0], files, clock)
    except NewerMetadata:
        raise
    except CorruptMetadata as error:
        raise MetadataLost(
            f"{error}: restore that file from a backup, or rebuild it from the logs with `{rebuild_command(log_dirs)}`"
        ) from error


def require_metadata(files: FileSystem, log_dirs: Sequence[str]) -> None:
    """`MetadataLost` when the log directories are not new, but have no metadata file. Changes nothing."""
    path = os.path.join(log_dirs[0], FILE_NAME)
    if files.exists(path):
        return
    if files.exists(os.path.join(log_dirs[0], TAKEN_IN_NAME)):
        raise MetadataLost(
            f"{log_dirs[0]} was taken into a cluster by `barnabas up --brokers`, whose ZooKeeper has its metadata now: "
            "start the cluster again with the same command"
        )
    _refuse_other_order(files, log_dirs)
    for directory in log_dirs:
        if traces := _traces(files, directory):
            if files.exists(lock_path := os.path.join(directory, LOCK)):
                files.lock(lock_path).release()  # another broker that uses it keeps its metadata elsewhere
            raise MetadataLost(
                f"{directory} {traces}, but there is no {path}: restore that file from a backup, or rebuild it from "
                f"the logs with `{rebuild_command(log_dirs)}`"
            )


def _refuse_other_order(files: FileSystem, log_dirs: Sequence[str]) -> None:
    for directory in log_dirs[1:]:
        with suppress(DiskFailed):  # the directory's own failure, which opening it will report
            if files.exists(os.path.join(directory, FILE_NAME)):
                raise MetadataLost(f"{FILE_NAME} is in {directory}: give that directory first, as before")


def _traces(files: FileSystem, directory: str) -> str | None:
    """What shows that a broker has used the directory; None when it is new, or cannot be read."""
    try:
        if not files.exists(directory):
            return None
        if partitions := _logs_in(files, directory):
            return f"holds {len(partitions)} partition{'s' if len(partitions) > 1 else ''}"
        meta = read_meta_properties(files, os.path.join(directory, META_PROPERTIES))
    except (DiskFailed, CorruptCheckpoint):  # the directory's own failure, which opening it will report
        return None
    return f"belongs to cluster {meta.cluster_id}" if meta is not None and meta.cluster_id else None


def _logs_in(files: FileSystem, directory: str) -> list[TopicPartition]:
    """The partitions that lie there. A name alone makes none: `photos-2024` is one, too."""
    return [
        name
        for name in LogDirectory(files, directory).list().partitions
        if holds_log(files, os.path.join(directory, str(name)))
    ]


def rebuild(
    files: FileSystem,
    clock: Clock,
    random: Random,
    log_dirs: Sequence[str],
    *,
    node_id: int | None = None,
    known_configs: Mapping[str, Mapping[str, str]] | None = None,
    replace: bool = False,
    allow_missing: bool = False,
    dry_run: bool = False,
) -> Rebuilding:
    """Makes the metadata file in the first directory.

    `DirectoryLocked` while a broker uses one of the directories; `MetadataReadable` when a file is there that can be
    read, unless `replace` says so; `CannotRebuild` when partitions are missing, unless that is allowed. Nothing has
    changed then.
    """
    with locked_directories(files, log_dirs):
        _refuse_other_order(files, log_dirs)
        if not replace:
            _require_unreadable(files, log_dirs[0])
        notes: list[str] = []
        found = survey_logs(files, log_dirs, node_id, notes)
        metadata_log = find_metadata_log(files, log_dirs)
        of_kafka = {} if metadata_log is None else _kafka_configs(files, log_dirs, metadata_log, notes)
        configs = {**INTERNAL_TOPIC_CONFIGS, **of_kafka, **(known_configs or {})}
        metadata = rebuild_metadata(found, configs, random, clock.now_ms())
        if metadata.missing and not allow_missing:
            names = ", ".join(map(str, metadata.missing[:5])) + (", ..." if len(metadata.missing) > 5 else "")
            raise CannotRebuild(
                f"partitions not found, though later ones of their topics were: {len(metadata.missing)} ({names}); "
                "give all log directories of the broker, or create these partitions empty with --allow-missing"
            )
        backup = None if dry_run else replace_table(files, log_dirs[0], metadata.tree)
        if metadata_log is not None and not dry_run:
            note_adoption(files, log_dirs, metadata_log)
        return Rebuilding(os.path.join(log_dirs[0], FILE_NAME), found, metadata, notes, backup)


@contextmanager
def locked_directories(files: FileSystem, log_dirs: Sequence[str]) -> Iterator[None]:
    """No broker uses them meanwhile. `DirectoryLocked` while one does."""
    with ExitStack() as stack:
        for directory in log_dirs:
            if not files.is_directory(directory):
                raise CannotRebuild(f"{directory} is not a directory")
            stack.callback(files.lock(os.path.join(directory, LOCK)).release)
        yield


def _kafka_configs(
    files: FileSystem, log_dirs: Sequence[str], metadata_log: str, notes: list[str]
) -> Mapping[str, Mapping[str, str]]:
    """The settings of topics from Kafka's own metadata, unless Barnabas has changed them since, or may have."""
    is_ours = files.exists(os.path.join(log_dirs[0], FILE_NAME)) or was_adopted(files, log_dirs)
    if is_ours and not has_kafka_written(files, log_dirs):
        return {}
    try:
        return usable_configs(read_kafka_metadata(files, metadata_log), notes)
    except UnreadableKafkaMetadata as problem:
        notes.append(str(problem))
        return {}


def _require_unreadable(files: FileSystem, directory: str) -> None:
    path = os.path.join(directory, FILE_NAME)
    if not files.exists(path):
        return
    try:
        table = SqliteTable(directory, files)
        try:
            table.load()
        finally:
            table.close()
    except NewerMetadata:
        raise
    except (CorruptMetadata, DiskFailed):
        return
    raise MetadataReadable(f"{path} is readable, so there is nothing to rebuild; --replace rebuilds it anyway")


def survey_logs(files: FileSystem, log_dirs: Sequence[str], node_id: int | None, notes: list[str]) -> FoundLogs:
    """Reads what the directories say. A damaged small file counts as missing, and is noted."""
    paths: dict[TopicPartition, str] = {}
    compacted: set[str] = set()
    producer_id_max = NO_PRODUCER
    for directory in log_dirs:
        try:
            compacted.update(name.topic for name in read_offsets(files, os.path.join(directory, CLEANER_OFFSETS)))
        except CorruptCheckpoint as problem:
            notes.append(str(problem))
        for name in _logs_in(files, directory):
            path = os.path.join(directory, str(name))
            if name in paths:
                raise CannotRebuild(f"{name} is both in {paths[name]} and in {path}: move the unwanted one elsewhere")
            paths[name] = path
            producer_id_max = max(producer_id_max, *_producer_ids(files, path))
    cluster_id, node_id = _owner(files, log_dirs, node_id, notes)
    partitions = [_survey_partition(files, path, name, notes) for name, path in paths.items()]
    strays = [stray for directory in log_dirs for stray in _survey_strays(files, directory, notes)]
    return FoundLogs(cluster_id, node_id, partitions, frozenset(compacted), producer_id_max, strays)


def _survey_strays(files: FileSystem, directory: str, notes: list[str]) -> Iterator[FoundPartition]:
    """Those whose names say which partition they held."""
    for stray in LogDirectory(files, directory).list().strays:
        name = partition_set_aside(stray)
        if name is not None:
            yield _survey_partition(files, os.path.join(directory, stray), name, notes)


def _owner(files: FileSystem, log_dirs: Sequence[str], node_id: int | None, notes: list[str]) -> tuple[str | None, int]:
    """The cluster and the node that the directories belong to."""
    owners: dict[tuple[str | None, int | None], str] = {}
    for directory in log_dirs:
        try:
            meta = read_meta_properties(files, os.path.join(directory, META_PROPERTIES))
        except CorruptCheckpoint as problem:
            notes.append(str(problem))
        else:
            if meta is not None:
                owners.setdefault((meta.cluster_id, meta.node_id), directory)
    if len(owners) > 1:
        described = "; ".join(f"{path}: cluster {one[0]}, node {one[1]}" for one, path in owners.items())
        raise CannotRebuild(f"the directories belong to different brokers ({described}): give those of one broker")
    cluster_id, own_node_id = next(iter(owners), (None, None))
    if own_node_id is None:
        own_node_id = DEFAULT_NODE_ID if node_id is None else node_id
    elif node_id not in (None, own_node_id):
        raise CannotRebuild(f"the directories belong to node {own_node_id}, not to node {node_id}")
    return cluster_id, own_node_id


def _survey_partition(files: FileSystem, path: str, name: TopicPartition, notes: list[str]) -> FoundPartition:
    topic_id, created_ms = None, 0
    try:
        topic_id = read_partition_metadata(files, metadata_path := os.path.join(path, PARTITION_METADATA))
        if topic_id is not None:
            created_ms = files.modified_ms(metadata_path)
    except CorruptCheckpoint as problem:
        notes.append(str(problem))
    return FoundPartition(name, topic_id, created_ms, _newest_epoch(files, path, notes), path)


def _newest_epoch(files: FileSystem, path: str, notes: list[str]) -> LeaderEpoch:
    try:
        entries = read_leader_epochs(files, os.path.join(path, LEADER_EPOCHS))
    except CorruptCheckpoint as problem:
        notes.append(str(problem))
        return NO_EPOCH
    return max((entry.epoch for entry in entries), default=NO_EPOCH)


def _producer_ids(files: FileSystem, path: str) -> Iterator[ProducerId]:
    """The ids of the producers that the newest snapshot knows, without those that a client has made up."""
    yield NO_PRODUCER
    names = [name for name in files.list(path) if name.endswith(SNAPSHOT_SUFFIX)]
    for name in names[-1:]:
        try:
            states = read_snapshot(files, os.path.join(path, name))
        except CorruptSnapshot:
            continue
        yield from (state.producer_id for state in states if state.producer_id <= GIVEN_PRODUCER_ID_MAX)
