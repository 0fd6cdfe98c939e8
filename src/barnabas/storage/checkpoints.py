"""The small text files beside the logs, in Apache Kafka's formats.

```
in a log directory
  recovery-point-offset-checkpoint  offsets  everything below is on the disk
  replication-offset-checkpoint     offsets  the high watermarks
  log-start-offset-checkpoint       offsets  where a log begins, if not with its first segment
  cleaner-offset-checkpoint         offsets  compacted up to here
  .kafka_cleanshutdown              JSON     the last stop was clean; holds the broker's epoch
in a partition's directory
  leader-epoch-checkpoint           epochs   which leader epoch began where
  partition.metadata                         two lines, 'version: 0' and 'topic_id: ...'

offsets:  0               version                       epochs:  0         version
          2               entry count                            1         entry count
          orders 0 4711   topic, partition, offset               7 4711    epoch, start offset
          orders 1 0
```

Files of offsets end with an entry of ours, `__barnabas_checksum 0 N`, whose offset is the checksum of the others: one
flipped bit could make a log start at its end, or count as synced what is not. Kafka takes it for a partition that it
does not have; a file without it is one of Kafka's, and believed.

A recovery point in a file of ours says one thing more: compaction has left no gap at or above it. Kafka also compacts
what it has not synced.

`encode_*` and `decode_*` are pure; `read_*` and `write_*` go through the `FileSystem`. A write replaces the
whole file, so a crash leaves the old or the new content. Reading a file that is not there, or is empty (Kafka
creates some that way), gives nothing; a damaged one raises `CorruptCheckpoint`, and the caller decides what
can do without it. Writes sync: not on the event loop. `meta_properties` has the file that says whose
directory it is.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from barnabas.base.errors import BarnabasError
from barnabas.base.filesystem import FileSystem, read_file, replace_file
from barnabas.base.ids import Offset, TopicPartition
from barnabas.base.uuid import ZERO_UUID, parse_uuid, uuid_text
from barnabas.records import kernel
from barnabas.storage.log.epochs import EpochEntry

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

UNKNOWN_BROKER_EPOCH: Final = -1

_CHECKSUM: Final = TopicPartition("__barnabas_checksum", 0)
_VERSION: Final = 0
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"\+?[0-9]{1,19}")
_NAME_VALUE: Final = re.compile(r"(?P<name>[a-z_]+):\s+(?P<value>\S+)\s*")

_Entry = TypeVar("_Entry")


class CorruptCheckpoint(BarnabasError):  # noqa: N818 - a fact about bytes, named as one
    """A checkpoint file that cannot be read. `line` counts from 1; None means the file as a whole."""

    def __init__(self, path: str, line: int | None, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if line is None else f"{path}, line {line}: {problem}")
        self.path = path
        self.line = line
        self.problem = problem

    def describe(self) -> str:
        """The problem and its line, for a reader who knows the path."""
        return self.problem if self.line is None else f"line {self.line}: {self.problem}"


class _Malformed(Exception):  # noqa: N818
    """What is wrong with one line; becomes a `CorruptCheckpoint` where file and line are known."""


# Offsets per partition


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    lines = _offset_lines(offsets)
    if lines:
        lines += _offset_lines({_CHECKSUM: _checksum(lines)})
    return _encode_lines(lines)


class StoredOffsets(NamedTuple):
    """What a file of offsets says."""

    offsets: dict[TopicPartition, Offset]
    is_ours: bool
    """Whether it has our checksum. A file without entries has none."""


def decode_offsets(content: bytes, path: str) -> StoredOffsets:
    offsets = dict(_decode_lines(content, path, _parse_offset))
    checksum = offsets.pop(_CHECKSUM, None)
    if checksum not in (None, _checksum(_offset_lines(offsets))):
        raise CorruptCheckpoint(path, None, "the checksum does not match")
    return StoredOffsets(offsets, is_ours=checksum is not None)


def _offset_lines(offsets: Mapping[TopicPartition, Offset]) -> list[str]:
    return [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]


def _checksum(lines: Iterable[str]) -> int:
    return kernel.crc32c("\n".join(lines).encode())


def write_offsets(files: FileSystem, path: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    replace_file(files, path, encode_offsets(offsets))


def read_stored_offsets(files: FileSystem, path: str) -> StoredOffsets:
    return decode_offsets(_read(files, path), path)


def read_offsets(files: FileSystem, path: str) -> dict[TopicPartition, Offset]:
    return read_stored_offsets(files, path).offsets


def _parse_offset(line: str) -> tuple[TopicPartition, Offset]:
    fields = line.split()
    if len(fields) != 3:
        raise _Malformed(f"not 'topic partition offset': {line[:80]!r}")
    return TopicPartition(fields[0], _number(fields[1], _INT32_MAX)), _number(fields[2], _INT64_MAX)


# Leader epochs


def encode_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return _encode_lines(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def decode_leader_epochs(content: bytes, path: str) -> list[EpochEntry]:
    return _decode_lines(content, path, _parse_epoch)


def write_leader_epochs(files: FileSystem, path: str, entries: Iterable[EpochEntry]) -> None:
    replace_file(files, path, encode_leader_epochs(entries))


def read_leader_epochs(files: FileSystem, path: str) -> list[EpochEntry]:
    return decode_leader_epochs(_read(files, path), path)


def _parse_epoch(line: str) -> EpochEntry:
    fields = line.split()
    if len(fields) != 2:
        raise _Malformed(f"not 'epoch start-offset': {line[:80]!r}")
    return EpochEntry(_number(fields[0], _INT32_MAX), _number(fields[1], _INT64_MAX))


# The topic id of a partition's directory


def encode_partition_metadata(topic_id: UUID) -> bytes:
    return f"version: {_VERSION}\ntopic_id: {uuid_text(topic_id)}".encode("ascii")


def decode_partition_metadata(content: bytes, path: str) -> UUID:
    lines = _text(content, path).splitlines()
    if len(lines) != 2:
        raise CorruptCheckpoint(path, None, f"{len(lines)} lines instead of two")
    version = _named_value(lines[0], "version")
    if version is None or not _NUMBER.fullmatch(version):
        raise CorruptCheckpoint(path, 1, f"not 'version: NUMBER': {lines[0][:80]!r}")
    text = _named_value(lines[1], "topic_id")
    if text is None:
        raise CorruptCheckpoint(path, 2, f"not 'topic_id: IDENTIFIER': {lines[1][:80]!r}")
    try:
        topic_id = parse_uuid(text)
    except ValueError as error:
        raise CorruptCheckpoint(path, 2, str(error)) from None
    if topic_id == ZERO_UUID:
        raise CorruptCheckpoint(path, 2, "the topic id is zero")
    return topic_id


def write_partition_metadata(files: FileSystem, path: str, topic_id: UUID) -> None:
    replace_file(files, path, encode_partition_metadata(topic_id))


def read_partition_metadata(files: FileSystem, path: str) -> UUID | None:
    """The topic id, or None when there is no file (a topic without an id, or a crash while creating it)."""
    if not files.exists(path):
        return None
    return decode_partition_metadata(read_file(files, path), path)


def _named_value(line: str, name: str) -> str | None:
    match = _NAME_VALUE.fullmatch(line)
    return match["value"] if match is not None and match["name"] == name else None


# The mark of a clean stop


@dataclass(frozen=True, slots=True)
class CleanShutdown:
    """The last stop was clean. The broker's epoch at that time is -1 when nobody knows it."""

    broker_epoch: int = UNKNOWN_BROKER_EPOCH


def encode_clean_shutdown(mark: CleanShutdown) -> bytes:
    return json.dumps({"version": _VERSION, "brokerEpoch": mark.broker_epoch}, separators=(",", ":")).encode("ascii")


def decode_clean_shutdown(content: bytes) -> CleanShutdown:
    """Never fails: the file's presence is what counts, and older versions of Kafka left it empty."""
    try:
        fields = json.loads(content)
    except ValueError:
        return CleanShutdown()
    epoch = fields.get("brokerEpoch") if isinstance(fields, dict) else None
    return CleanShutdown(epoch) if isinstance(epoch, int) else CleanShutdown()


def write_clean_shutdown(files: FileSystem, path: str, mark: CleanShutdown) -> None:
    """To be called last, when everything in the directory is synced."""
    replace_file(files, path, encode_clean_shutdown(mark))


def read_clean_shutdown(files: FileSystem, path: str) -> CleanShutdown | None:
    """None when the last stop was not clean. The caller removes the file before it changes anything else."""
    if not files.exists(path):
        return None
    return decode_clean_shutdown(read_file(files, path))


# What the formats share


def _read(files: FileSystem, path: str) -> bytes:
    return read_file(files, path) if files.exists(path) else b""


def _encode_lines(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "".join(f"{line}\n" for line in (str(_VERSION), str(len(lines)), *lines)).encode()


def _decode_lines(content: bytes, path: str, parse: Callable[[str], _Entry]) -> list[_Entry]:
    lines = _text(content, path).splitlines()
    entries: list[_Entry] = []
    count = 0
    number = 0
    try:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                _check_version(line)
            elif number == 2:
                count = _number(line.strip(), _INT32_MAX)
            else:
                entries.append(parse(line))
    except _Malformed as error:
        raise CorruptCheckpoint(path, number, str(error)) from None
    if len(entries) != count:
        raise CorruptCheckpoint(path, 2, f"{count} entries announced, but there are {len(entries)}")
    return entries


def _check_version(line: str) -> None:
    version = _number(line.strip(), _INT32_MAX)
    if version != _VERSION:
        raise _Malformed(f"version {version}, not {_VERSION}")


def _number(text: str, largest: int) -> int:
    """A number that is not negative. Stricter than `int`, which takes '1_0' and digits of every script."""
    if not _NUMBER.fullmatch(text) or int(text) > largest:
        raise _Malformed(f"not a number from 0 to {largest}: {text[:80]!r}")
    return int(text)


def _text(content: bytes, path: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise CorruptCheckpoint(path, line, f"byte {content[error.start]:#04x} is not UTF-8") from None
