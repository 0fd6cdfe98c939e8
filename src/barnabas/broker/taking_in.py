"""A broker that was alone becomes the first one of a cluster: its metadata goes to ZooKeeper, its logs stay its own.

```
1  barnabas-metadata.db is copied into ZooKeeper, which is under construction meanwhile: no broker starts there
2  the file is renamed to barnabas-metadata.db.taken-in: from here on ZooKeeper has the truth
3  the construction is finished: ZooKeeper is that of the cluster
4  everything in the directory moves to where the broker's logs are in a cluster; the renamed file moves last
```

A crash at any moment leaves one truth, and running it again goes on: before step 2 the broker may run alone as ever,
and the copy is brought in line with its file; afterwards it is refused alone, and only steps 3 and 4 are left.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import PurePath
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.filesystem import FileSystem, make_durable_directory
from barnabas.base.ids import TopicPartition
from barnabas.base.wording import first_few
from barnabas.broker.rebuilding import locked_directories
from barnabas.metadata.construction import CONSTRUCTION, Construction, require_idle, stored_cluster_id
from barnabas.metadata.errors import NoNode
from barnabas.metadata.paths import name_of, parent_of
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.table import FILE_NAME, LOCK_NAME, TAKEN_IN_NAME, SqliteTable, retire_table
from barnabas.metadata.tree import Tree
from barnabas.metadata.tree_copy import copy_tree
from barnabas.metadata.znodes import TOPICS, TopicAssignment
from barnabas.storage.directories.meta_properties import LOCK, META_PROPERTIES, MetaProperties, read_meta_properties
from barnabas.storage.directories.recognition import holds_log

OpenStore = Callable[[], Awaitable[MetadataStore]]

_MOVED_LAST: Final = (META_PROPERTIES, TAKEN_IN_NAME)
"""As long as one of them is there, the directory is that of a single broker."""
_LEFT: Final = (LOCK, LOCK_NAME)


class CannotTakeIn(BarnabasError):  # noqa: N818 - a fact about a directory, named as one
    """The directory cannot become that of a cluster's broker; the message says why, and what to do."""


def is_single(files: FileSystem, directory: str) -> bool:
    """Whether a directory is that of a broker that is, or was, alone."""
    return any(files.exists(os.path.join(directory, name)) for name in _MOVED_LAST)


def is_begun(files: FileSystem, directory: str) -> bool:
    """Whether there is no way back any more."""
    return files.exists(os.path.join(directory, TAKEN_IN_NAME))


def require_takeable(files: FileSystem, directory: str, node_id: int, target: str) -> None:
    """`CannotTakeIn` for a directory that cannot become that of broker `node_id`, in `target`. Changes nothing."""
    if is_begun(files, directory):
        return
    folder = _folder_of(directory, target)
    if files.is_directory(path := os.path.join(directory, folder)) and holds_log(files, path):
        raise CannotTakeIn(
            f"{path} is a partition, and a cluster keeps a broker's folder there: run the broker with 'barnabas "
            "broker', or choose another directory with --data-dir"
        )
    if not files.exists(os.path.join(directory, FILE_NAME)):
        raise CannotTakeIn(
            f"{directory} has no {FILE_NAME}: start the broker alone once with 'barnabas up', or rebuild that file "
            "with 'barnabas metadata rebuild'"
        )
    meta = _identity(files, directory)
    if meta.cluster_id is None or meta.node_id != node_id:
        raise CannotTakeIn(
            f"the broker in {directory} has the id {meta.node_id}, not {node_id}: run it with 'barnabas broker', or "
            "choose another directory with --data-dir"
        )


def take_in(files: FileSystem, directory: str, target: str, open_store: OpenStore, kept: Collection[str] = ()) -> None:
    """`target`, below the directory, is the log directory of the broker from now on; `kept` stays where it is."""
    with locked_directories(files, [directory]):
        if files.exists(os.path.join(directory, FILE_NAME)):
            tree = _load(files, directory)
            _require_complete(files, directory, tree)
            cluster_id = _identity(files, directory).cluster_id
            assert cluster_id is not None, "looked at before"
            asyncio.run(_copy(open_store, tree, cluster_id, lambda: retire_table(files, directory)))
        else:
            asyncio.run(_finish(open_store, _taken_cluster_id(files, directory, target), directory))
        _move(files, directory, target, kept)


def _identity(files: FileSystem, directory: str) -> MetaProperties:
    meta = read_meta_properties(files, os.path.join(directory, META_PROPERTIES))
    return meta or MetaProperties(None, None, None)


def _taken_cluster_id(files: FileSystem, directory: str, target: str) -> str | None:
    """`meta.properties` may have been moved."""
    return _identity(files, directory).cluster_id or _identity(files, target).cluster_id


def _load(files: FileSystem, directory: str) -> Tree:
    table = SqliteTable(directory, files)
    try:
        return table.load()
    finally:
        table.close()


def _require_complete(files: FileSystem, directory: str, tree: Tree) -> None:
    missing = [name for name in _partitions(tree) if not files.is_directory(os.path.join(directory, str(name)))]
    if missing:
        raise CannotTakeIn(
            f"{directory} does not have {first_few(missing)}: a broker with several log directories is run with "
            "'barnabas broker'; if this is the only one, start it alone once with 'barnabas up'"
        )


def _partitions(tree: Tree) -> Iterator[TopicPartition]:
    for path, node in tree.nodes.items():
        if parent_of(path) == TOPICS:
            topic = TopicAssignment.decode(name_of(path), node.data)
            yield from (TopicPartition(topic.topic, index) for index in range(len(topic.partitions)))


async def _copy(open_store: OpenStore, tree: Tree, cluster_id: str, commit: Callable[[], None]) -> None:
    store = await open_store()
    try:
        await _require_room(store, cluster_id)
        construction = Construction(store, cluster_id)
        await construction.begin()
        await copy_tree(construction, store, tree)
        commit()
        await construction.finish()
    finally:
        await store.close()


async def _require_room(store: MetadataStore, cluster_id: str) -> None:
    """A store that is empty, or that an earlier attempt began to fill."""
    await require_idle(store)
    stored = await stored_cluster_id(store)
    if stored == cluster_id and await store.exists(CONSTRUCTION) is not None:
        return
    try:
        is_empty = stored is None and not await store.children(TOPICS)
    except NoNode:
        is_empty = True
    if not is_empty:
        raise CannotTakeIn(
            f"ZooKeeper has {'topics' if stored is None else f'cluster {stored}'} already, so cluster {cluster_id} "
            "cannot be copied into it: give a path of its own with --zookeeper HOST:PORT/PATH"
        )


async def _finish(open_store: OpenStore, cluster_id: str | None, directory: str) -> None:
    """The copy is complete; the construction may be over, too."""
    store = await open_store()
    try:
        if cluster_id is None or await stored_cluster_id(store) != cluster_id:
            raise CannotTakeIn(
                f"ZooKeeper does not have the metadata that was copied from {directory}: give the same --zookeeper as "
                f"before, or begin again after renaming {TAKEN_IN_NAME} to {FILE_NAME} there"
            )
        if await store.exists(CONSTRUCTION) is not None:
            construction = Construction(store, cluster_id)
            await construction.begin()
            await construction.finish()
    finally:
        await store.close()


def _folder_of(directory: str, target: str) -> str:
    """The name in the directory that leads to the target."""
    return PurePath(target).relative_to(directory).parts[0]


def _move(files: FileSystem, directory: str, target: str, kept: Collection[str]) -> None:
    """What is left there."""
    make_durable_directory(files, target)
    staying = {*_MOVED_LAST, *_LEFT, *kept, _folder_of(directory, target)}
    names = [name for name in files.list(directory) if name not in staying]
    for name in (*names, *_MOVED_LAST):
        source = os.path.join(directory, name)
        if files.exists(source):
            files.rename(source, os.path.join(target, name))
        if name in (*names[-1:], *_MOVED_LAST):  # durable before what is moved after it
            files.sync_directory(target)
            files.sync_directory(directory)
    for name in _LEFT:
        files.remove(os.path.join(directory, name))
