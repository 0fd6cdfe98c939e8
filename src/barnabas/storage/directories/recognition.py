"""Whether a directory holds a partition's log, Kafka's or ours: the tools check and change nothing else.

A name like TOPIC-NUMBER proves nothing: `backup-2024` is one, too. A log has what no other directory has: a
`partition.metadata` that can be read, or a segment, which is a `.log` named by twenty digits with an index of the same
name beside it, or with a record batch at its beginning. Damaged logs keep one of these.
"""

import os
from contextlib import closing
from typing import Final

from barnabas.base.filesystem import FileSystem
from barnabas.records.batch import HEADER_BYTES, MAGIC, PREFIX_BYTES
from barnabas.storage.checkpoints import PARTITION_METADATA, CorruptCheckpoint, read_partition_metadata
from barnabas.storage.directories.names import parse_segment_file_name
from barnabas.storage.segment.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX

_MAGIC_POSITION: Final = 16
_LENGTH: Final = slice(8, PREFIX_BYTES)


def holds_log(files: FileSystem, directory: str) -> bool:
    names = set(files.list(directory))
    if PARTITION_METADATA in names and _has_topic_id(files, os.path.join(directory, PARTITION_METADATA)):
        return True
    for name in names:
        parsed = parse_segment_file_name(name)
        if parsed is not None and parsed.kind == LOG_SUFFIX and not parsed.suffix:
            stem = name.removesuffix(LOG_SUFFIX)
            if stem + INDEX_SUFFIX in names or stem + TIME_INDEX_SUFFIX in names:
                return True
            if _begins_with_batch(files, os.path.join(directory, name)):
                return True
    return False


def _has_topic_id(files: FileSystem, path: str) -> bool:
    try:
        return read_partition_metadata(files, path) is not None
    except CorruptCheckpoint:
        return False


def _begins_with_batch(files: FileSystem, path: str) -> bool:
    """Of this magic, or of the two before it, whose first bytes are laid out alike."""
    with closing(files.open(path)) as file:
        beginning = file.read_at(HEADER_BYTES, 0)
    if len(beginning) <= _MAGIC_POSITION or beginning[_MAGIC_POSITION] > MAGIC:
        return False
    return 0 < int.from_bytes(beginning[_LENGTH], "big", signed=True) <= files.size(path) - PREFIX_BYTES
