"""Log directories that Apache Kafka wrote, taken over: its cluster id, node id, topics with their ids and settings.

`adopt_directories` is called before anything is written. It makes the metadata file from Kafka's own metadata log
(`barnabas.broker.kafka_metadata`) and from what the directories say (`barnabas.broker.rebuilding`), or refuses and
leaves every file as it was. Logs, checkpoints and committed offsets need nothing: their formats are the same.

| the directories | what happens |
|---|---|
| of a Kafka broker that was alone | taken over |
| one of several, and the others are not named | refused: the partitions in the others would start over, empty |
| of one broker of several | refused: the other replicas may have more |
| in use by a running Kafka | refused |
| taken over before, and Kafka has run since | refused: what Kafka has created since is not in our metadata |
| of a Kafka with ZooKeeper, where the settings of its topics are | refused: the user is told how to rebuild |

Crash: the metadata file appears as a whole; before it is there, the next start begins again.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from random import Random
from uuid import UUID

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import NO_EPOCH, TopicPartition
from barnabas.base.wording import first_few
from barnabas.broker.kafka_metadata import (
    find_metadata_log,
    has_kafka_written,
    is_of_zookeeper,
    note_adoption,
    read_kafka_metadata,
    usable_configs,
    was_adopted,
)
from barnabas.broker.rebuilding import rebuild_command, survey_logs
from barnabas.metadata.kraft import UNASSIGNED_DIRECTORY, KraftMetadata, KraftPartition
from barnabas.metadata.rebuild import FoundLogs, FoundPartition, rebuild_metadata
from barnabas.metadata.table import FILE_NAME, replace_table
from barnabas.storage.checkpoints import CorruptCheckpoint
from barnabas.storage.directories.meta_properties import LOCK, META_PROPERTIES, MetaProperties, read_meta_properties

logger = logging.getLogger(__name__)


class CannotAdopt(BarnabasError):  # noqa: N818 - a fact about directories, named as one
    """Kafka's directories cannot be taken over as they are; the message says why, and what to do."""


def choose_node_id(files: FileSystem, log_dirs: Sequence[str], configured: int | None) -> int | None:
    """The number that is configured; else the one that the directories have, if they do."""
    if configured is not None:
        return configured
    return next((meta.node_id for meta in _known_identities(files, log_dirs) if meta.node_id is not None), None)


def known_cluster_id(files: FileSystem, log_dirs: Sequence[str]) -> str | None:
    """The cluster that the directories belong to, if they do."""
    return next((meta.cluster_id for meta in _known_identities(files, log_dirs) if meta.cluster_id is not None), None)


def _known_identities(files: FileSystem, log_dirs: Sequence[str]) -> Iterator[MetaProperties]:
    for directory in log_dirs:
        try:
            meta = read_meta_properties(files, os.path.join(directory, META_PROPERTIES))
        except (CorruptCheckpoint, DiskFailed):  # opening the directory will report it
            continue
        if meta is not None:
            yield meta


def adopt_directories(files: FileSystem, clock: Clock, random: Random, log_dirs: Sequence[str], node_id: int) -> None:
    """Takes over what Kafka has left, if it has, and logs what. Directories that are new, or ours, stay as they are."""
    if files.exists(os.path.join(log_dirs[0], FILE_NAME)):
        _require_unchanged(files, log_dirs)
        return
    metadata_log = find_metadata_log(files, log_dirs)
    if metadata_log is None:
        if is_of_zookeeper(files, log_dirs):
            raise CannotAdopt(
                f"{log_dirs[0]} was written by Apache Kafka with ZooKeeper, which holds the settings of its topics: "
                f"take over the topics and all their records with `{rebuild_command(log_dirs)}`, then set retention "
                "again"
            )
        return
    if was_adopted(files, log_dirs):
        return  # our own metadata was lost since, and Kafka's may be old
    with ExitStack() as stack:
        for directory in log_dirs:
            if files.exists(lock_path := os.path.join(directory, LOCK)):
                stack.callback(files.lock(lock_path).release)
        notes: list[str] = []
        found = survey_logs(files, log_dirs, node_id, notes)
        kafka = read_kafka_metadata(files, metadata_log)
        _require_alone(kafka, found, log_dirs)
        taken = _taken_over(kafka, found, _directory_ids(files, log_dirs), notes)
        rebuilt = rebuild_metadata(taken, usable_configs(kafka, notes), random, clock.now_ms())
        replace_table(files, log_dirs[0], rebuilt.tree)
        note_adoption(files, log_dirs, metadata_log)
    logger.info(
        "took over the data of Apache Kafka in %s: cluster %s, topics: %d, partitions: %d",
        *(", ".join(log_dirs), rebuilt.cluster_id, len(rebuilt.topics), len(taken.partitions)),
    )
    for note in notes:
        logger.warning("%s", note)


def _require_unchanged(files: FileSystem, log_dirs: Sequence[str]) -> None:
    if has_kafka_written(files, log_dirs):
        raise CannotAdopt(
            f"Apache Kafka has used {log_dirs[0]} since Barnabas took it over, so its topics may have changed: "
            f"rebuild the metadata with `{rebuild_command(log_dirs)} --replace`, or continue with Kafka"
        )


def _require_alone(kafka: KraftMetadata, found: FoundLogs, log_dirs: Sequence[str]) -> None:
    if found.cluster_id is None:
        raise CannotAdopt(f"{log_dirs[0]} has no {META_PROPERTIES} that names its cluster: restore that file")
    others = {
        replica
        for topic in kafka.topics.values()
        for partition in topic.partitions.values()
        for replica in partition.replicas
        if replica != found.node_id
    }
    if others:
        raise CannotAdopt(
            f"{log_dirs[0]} belongs to node {found.node_id} of a Kafka cluster whose partitions have replicas on "
            f"other nodes ({first_few(sorted(others))}), which may hold more records: take over a single-broker "
            f"cluster, or keep only the records found here with `{rebuild_command(log_dirs)}`"
        )


def _directory_ids(files: FileSystem, log_dirs: Sequence[str]) -> set[UUID]:
    metas = [read_meta_properties(files, os.path.join(directory, META_PROPERTIES)) for directory in log_dirs]
    return {UNASSIGNED_DIRECTORY} | {meta.directory_id for meta in metas if meta and meta.directory_id}


def _taken_over(kafka: KraftMetadata, found: FoundLogs, directory_ids: set[UUID], notes: list[str]) -> FoundLogs:
    """The partitions that Kafka's metadata has, with what their directories say."""
    there = {one.name: one for one in found.partitions}
    partitions = []
    elsewhere = []
    for topic in kafka.topics.values():
        for index, partition in sorted(topic.partitions.items()):
            name = TopicPartition(topic.name, index)
            one = there.get(name)
            if one is not None and one.topic_id in (None, topic.id):
                del there[name]
            elif partition.directory_of(found.node_id) in directory_ids:
                one = FoundPartition(name, topic.id, 0, NO_EPOCH)
                notes.append(f"{name} has no directory, as after a kill: it starts empty")
            else:
                elsewhere.append(name)
                continue
            partitions.append(_as_known(one, topic.id, partition))
    if elsewhere:
        raise CannotAdopt(
            f"{first_few(elsewhere)} must be in another log directory: give all log.dirs of that Kafka, in the same "
            "order"
        )
    if there:
        notes.append(f"not taken over, because Kafka's metadata does not have them: {first_few(sorted(there))}")
    producer_id_max = max(found.producer_id_max, kafka.next_producer_id - 1)
    return replace(found, partitions=partitions, producer_id_max=producer_id_max)


def _as_known(one: FoundPartition, topic_id: UUID, partition: KraftPartition) -> FoundPartition:
    """An epoch that Kafka has given to a leader may have no record, but clients know it."""
    return replace(one, topic_id=topic_id, leader_epoch=max(one.leader_epoch, partition.leader_epoch))
