"""The tree of one store, for another one: what a broker that was alone brings into a cluster.

Everything is copied as it is, except for what means nothing elsewhere: the cluster id, which comes last
(`barnabas.metadata.construction`), and broker epochs in the states of partitions, which are positions in the old store.
A version starts over; only that of `/brokers/seqid` counts something, and is brought up to where it was.
"""

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Final

from barnabas.metadata.construction import CONSTRUCTION, Construction
from barnabas.metadata.errors import NoNode
from barnabas.metadata.paths import ROOT, child_path, name_of
from barnabas.metadata.store import NO_OWNER, Create, Delete, MetadataStore, Operation, SetData
from barnabas.metadata.tree import Tree, TreeNode
from barnabas.metadata.znodes import BROKER_SEQUENCE, CLUSTER_ID, TOPICS, PartitionState

_STATE: Final = "state"


def copied_nodes(tree: Tree) -> list[Create]:
    """What to create elsewhere, parents first, in the order in which it was created here. Pure."""
    paths = [path for path, node in tree.nodes.items() if path not in (ROOT, CLUSTER_ID) and node.owner == NO_OWNER]
    paths.sort(key=lambda path: (tree.nodes[path].czxid, path))
    return [Create(path, _data(path, tree.nodes[path])) for path in paths]


def _data(path: str, node: TreeNode) -> bytes:
    if not (path.startswith(TOPICS) and name_of(path) == _STATE and node.data):
        return node.data
    state = PartitionState.decode(path, node.data)
    return replace(state, isr_epochs=(), elr=(), elr_epochs=(), offline=(), offline_epochs=()).encode()


async def copy_tree(construction: Construction, store: MetadataStore, tree: Tree) -> None:
    """Makes a store that is under construction like the tree, whatever an earlier attempt has left in it."""
    wanted = copied_nodes(tree)
    roots = dict.fromkeys(f"/{one.path.split('/')[1]}" for one in wanted)
    await construction.write([one async for one in _obsolete(store, roots, {one.path for one in wanted})])
    await construction.write(wanted)
    await construction.write(await _raised_sequence(store, tree))


async def _obsolete(store: MetadataStore, roots: Iterable[str], wanted: set[str]) -> AsyncIterator[Operation]:
    """The nodes below these that are not wanted, children first."""
    for root in roots:
        async for path in _walk(store, root):
            if path not in wanted and path != CLUSTER_ID and not path.startswith(CONSTRUCTION):
                yield Delete(path)


async def _walk(store: MetadataStore, path: str) -> AsyncIterator[str]:
    try:
        names = await store.children(path)
    except NoNode:
        return
    for name in names:
        async for below in _walk(store, child_path(path, name)):
            yield below
    yield path


async def _raised_sequence(store: MetadataStore, tree: Tree) -> list[Operation]:
    node = tree.nodes.get(BROKER_SEQUENCE)
    if node is None:
        return []
    return [SetData(BROKER_SEQUENCE, b"")] * (node.version - (await store.get(BROKER_SEQUENCE)).stat.version)
