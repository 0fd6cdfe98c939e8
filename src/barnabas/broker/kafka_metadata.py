"""Kafka's own metadata log in a log directory, read and never written; and whether Kafka has written to it since.

```
__cluster_metadata-0/
  OFFSET-EPOCH.checkpoint         a snapshot of everything up to an offset, written under another name and renamed
  OFFSET.log                      records from there on, in segments; after a kill the last batch may be torn
barnabas-adopted.properties       what the log looked like when Barnabas took the directories over
```

Barnabas does not write to that log, so it tells nothing that was changed after Barnabas took over. When Kafka has been
started on the directories again, it has written to the log, and the mark differs.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from barnabas.base.errors import BarnabasError, CorruptBatch, InvalidRecords, InvalidSetting
from barnabas.base.filesystem import FileSystem, read_file, replace_file
from barnabas.base.properties import InvalidProperties, parse_properties, render_properties
from barnabas.metadata.kraft import KraftMetadata, UnreadableKraftRecord
from barnabas.records.control import ControlType, read_control_type
from barnabas.records.reader import read_records
from barnabas.storage.directories.directory import CLUSTER_METADATA
from barnabas.storage.directories.meta_properties import META_PROPERTIES
from barnabas.storage.settings import LogConfig
from barnabas.storage.tools.batch_stream import StreamedBatch, stream_batches

ADOPTED: Final = "barnabas-adopted.properties"

_SNAPSHOT: Final = re.compile(r"(?P<offset>\d{20})-(?P<epoch>\d{10})\.checkpoint")
_SEGMENT: Final = re.compile(r"(?P<offset>\d{20})\.log")
_LAST_SEGMENT: Final = "metadata.log.segment"
_LAST_SEGMENT_BYTES: Final = "metadata.log.segment.bytes"


class UnreadableKafkaMetadata(BarnabasError):  # noqa: N818 - a fact about files, named as one
    """Kafka's metadata log does not tell all of the cluster; the message says why."""


def find_metadata_log(files: FileSystem, log_dirs: Sequence[str]) -> str | None:
    """Where Kafka's metadata log is, if it has one here."""
    for directory in log_dirs:
        path = os.path.join(directory, str(CLUSTER_METADATA))
        if files.is_directory(path) and _named(files, path, _SEGMENT):
            return path
    return None


def read_kafka_metadata(files: FileSystem, path: str) -> KraftMetadata:
    """What the metadata log in this directory says. `UnreadableKafkaMetadata` when it is not whole."""
    metadata = KraftMetadata()
    next_offset = 0
    if snapshots := _named(files, path, _SNAPSHOT):
        next_offset = _replay_snapshot(files, os.path.join(path, snapshots[-1]), metadata)
    segments = _named(files, path, _SEGMENT)
    for number, name in enumerate(segments):
        is_last = number == len(segments) - 1
        for batch in _batches(files, os.path.join(path, name), is_end_allowed=is_last):
            if batch.header.base_offset > next_offset:
                raise UnreadableKafkaMetadata(
                    f"{path} has no records from offset {next_offset} to {batch.header.base_offset}"
                )
            if batch.header.next_offset > next_offset:
                _replay(metadata, batch, next_offset, os.path.join(path, name))
                next_offset = batch.header.next_offset
    return metadata


def _named(files: FileSystem, path: str, pattern: re.Pattern[str]) -> list[str]:
    """In the order of their offsets: the names have leading zeros."""
    return sorted(name for name in files.list(path) if pattern.fullmatch(name))


def _replay_snapshot(files: FileSystem, path: str, metadata: KraftMetadata) -> int:
    """Returns the offset up to which the snapshot tells everything."""
    last_control = None
    for batch in _batches(files, path, is_end_allowed=False):
        if batch.header.is_control:
            *_, last = read_records(batch.batch)
            last_control = read_control_type(last.key)
        else:
            _replay(metadata, batch, 0, path)
    if last_control is not ControlType.SNAPSHOT_FOOTER:
        raise UnreadableKafkaMetadata(f"the snapshot {path} has no end")
    match = _SNAPSHOT.fullmatch(os.path.basename(path))
    assert match is not None, "found by its name"
    return int(match["offset"])


def _batches(files: FileSystem, path: str, *, is_end_allowed: bool) -> Iterator[StreamedBatch]:
    """A torn last batch was never acknowledged to anybody; any other damage hides records."""
    with closing(files.open(path)) as file:
        for item in stream_batches(file):
            if isinstance(item, StreamedBatch):
                yield item
            elif not (is_end_allowed and item.is_end):
                raise UnreadableKafkaMetadata(f"{path} is damaged at byte {item.position}: {item.problem}")


def _replay(metadata: KraftMetadata, batch: StreamedBatch, from_offset: int, path: str) -> None:
    if batch.header.is_control:
        return
    try:
        for record in read_records(batch.batch):
            if record.offset >= from_offset and record.value is not None:
                metadata.replay(record.value)
    except (CorruptBatch, InvalidRecords, UnreadableKraftRecord) as problem:
        raise UnreadableKafkaMetadata(f"{path}: {problem}") from problem


def usable_configs(metadata: KraftMetadata, notes: list[str]) -> dict[str, dict[str, str]]:
    """The settings of every topic that Barnabas has, too."""
    usable: dict[str, dict[str, str]] = {}
    for topic in metadata.topics.values():
        usable[topic.name] = {}
        for name, text in topic.configs.items():
            try:
                LogConfig().with_topic_settings({name: text})
            except InvalidSetting:
                notes.append(f"the setting {name}={text} of topic {topic.name} is skipped: Barnabas does not have it")
            else:
                usable[topic.name][name] = text
    return usable


def is_of_zookeeper(files: FileSystem, log_dirs: Sequence[str]) -> bool:
    """Whether a Kafka with ZooKeeper has written to one of these directories last."""
    for directory in log_dirs:
        path = os.path.join(directory, META_PROPERTIES)
        if files.exists(path) and (meta := _properties(files, path)) is not None and "broker.id" in meta:
            return meta.get("version", "0") == "0"
    return False


# -- whether Kafka has written since -------------------------------------------------------------------------------


def note_adoption(files: FileSystem, log_dirs: Sequence[str], metadata_log: str) -> None:
    """From now on the metadata log is known as it is."""
    content = render_properties(_look_of(files, metadata_log)).encode("ascii")
    replace_file(files, os.path.join(log_dirs[0], ADOPTED), content)


def was_adopted(files: FileSystem, log_dirs: Sequence[str]) -> bool:
    return files.exists(os.path.join(log_dirs[0], ADOPTED))


def has_kafka_written(files: FileSystem, log_dirs: Sequence[str]) -> bool:
    """Whether the metadata log has changed since Barnabas took the directories over. Not where it never did."""
    if not was_adopted(files, log_dirs):
        return False
    metadata_log = find_metadata_log(files, log_dirs)
    noted = _properties(files, os.path.join(log_dirs[0], ADOPTED))
    return metadata_log is not None and noted != _look_of(files, metadata_log)


def _properties(files: FileSystem, path: str) -> dict[str, str] | None:
    try:
        return parse_properties(read_file(files, path).decode("latin-1"))
    except InvalidProperties:
        return None


def _look_of(files: FileSystem, metadata_log: str) -> dict[str, str]:
    last = _named(files, metadata_log, _SEGMENT)[-1]
    with closing(files.open(os.path.join(metadata_log, last))) as file:
        return {_LAST_SEGMENT: last, _LAST_SEGMENT_BYTES: str(file.size())}
