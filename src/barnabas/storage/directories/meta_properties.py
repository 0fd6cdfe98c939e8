"""`meta.properties`: whose log directory this is, as Java properties in Apache Kafka's two versions.

| property | version 0 | version 1 |
|---|---|---|
| `version` | `0`, or missing | `1` |
| `cluster.id` | may be missing | required |
| `broker.id` | may be missing | |
| `node.id` | | required |
| `directory.id` | may be missing | may be missing; Barnabas always writes it |

Both are read; version 1 is written. The file is replaced as a whole, so a crash leaves the old or the new
content. Whether the ids are the right ones is for the caller to say.
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from barnabas.base.filesystem import FileSystem, read_file, replace_file
from barnabas.base.properties import InvalidProperties, parse_properties, render_properties
from barnabas.base.uuid import parse_uuid, uuid_text
from barnabas.storage.checkpoints import CorruptCheckpoint

META_PROPERTIES: Final = "meta.properties"
LOCK: Final = ".lock"
"""The file beside it, which is locked while a process uses the directory."""

_VERSION: Final = "1"
_OLD_VERSION: Final = "0"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity stored in a log directory. In version 0 any field may be missing."""

    cluster_id: str | None
    node_id: int | None
    directory_id: UUID | None


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """Version 1, which needs all three. Cluster ids are plain ASCII."""
    assert meta.cluster_id is not None
    assert meta.cluster_id.isascii()
    assert meta.node_id is not None
    assert meta.directory_id is not None
    properties = {
        "version": _VERSION,
        "cluster.id": meta.cluster_id,
        "node.id": str(meta.node_id),
        "directory.id": uuid_text(meta.directory_id),
    }
    return render_properties(properties).encode("ascii")


def decode_meta_properties(content: bytes, path: str) -> MetaProperties:
    try:
        properties = parse_properties(content.decode("latin-1"))
    except InvalidProperties as error:
        raise CorruptCheckpoint(path, None, str(error)) from None
    version = properties.get("version", _OLD_VERSION)
    if version not in (_OLD_VERSION, _VERSION):
        raise CorruptCheckpoint(path, None, f"version {version!r} is neither {_OLD_VERSION} nor {_VERSION}")
    if version == _VERSION:
        for name in ("cluster.id", "node.id"):
            if name not in properties:
                raise CorruptCheckpoint(path, None, f"{name} is missing")
    node_id = properties.get("node.id" if version == _VERSION else "broker.id")
    return MetaProperties(
        cluster_id=properties.get("cluster.id"),
        node_id=None if node_id is None else _parse_node_id(node_id, path),
        directory_id=_parse_directory_id(properties.get("directory.id"), path),
    )


def write_meta_properties(files: FileSystem, path: str, meta: MetaProperties) -> None:
    replace_file(files, path, encode_meta_properties(meta))


def read_meta_properties(files: FileSystem, path: str) -> MetaProperties | None:
    """None when there is no such file: a new directory."""
    if not files.exists(path):
        return None
    return decode_meta_properties(read_file(files, path), path)


def _parse_node_id(text: str, path: str) -> int:
    if not (text.isascii() and text.removeprefix("-").isdigit()) or not -(2**31) <= int(text) < 2**31:
        raise CorruptCheckpoint(path, None, f"the node id is not a 32-bit number: {text[:80]!r}")
    return int(text)


def _parse_directory_id(text: str | None, path: str) -> UUID | None:
    if text is None:
        return None
    try:
        return parse_uuid(text)
    except ValueError as error:
        raise CorruptCheckpoint(path, None, f"directory.id: {error}") from None
