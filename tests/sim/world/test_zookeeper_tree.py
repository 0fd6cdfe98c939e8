"""The tree of a simulated ZooKeeper: views of earlier positions."""

from random import Random

import pytest

from barnabas.metadata.errors import StoreError
from barnabas.metadata.store import Create, Delete, Node, Operation, SetData
from barnabas.metadata.tree import Draft, WriteContext
from barnabas.sim.world.zookeeper_tree import CommittedTree, View

PATHS = ("/a", "/b", "/a/c", "/a/d", "/a/c/e")


def operation(random: Random) -> Operation:
    path = random.choice(PATHS)
    return random.choice([Create(path), Create(path, ephemeral=True), SetData(path, random.randbytes(2)), Delete(path)])


def content(view: View) -> dict[str, tuple[Node | None, list[str] | None]]:
    return {path: (view.node(path), view.children(path)) for path in ("/", *PATHS)}


def commit_something(committed: CommittedTree, random: Random) -> None:
    """One to three operations in one write, if they are possible."""
    draft = Draft(committed.tree)
    context = WriteContext(committed.tree.zxid + 1, now_ms=random.randrange(1000), session_id=random.randint(1, 3))
    try:
        draft.run([operation(random) for _ in range(random.randint(1, 3))], context)
    except StoreError:
        return
    committed.commit(draft)


@pytest.mark.parametrize("seed", range(10))
def test_view_shows_the_tree_as_it_was_at_its_position(seed: int) -> None:
    random, committed = Random(seed), CommittedTree()
    expected = {0: content(committed.view(0))}
    forgotten = 0
    while committed.tree.zxid < 50:
        commit_something(committed, random)
        now = committed.tree.zxid
        expected[now] = content(committed.view(now))
        forgotten = max(forgotten, now - random.randint(1, 12))
        committed.forget(forgotten)
        for position in range(forgotten, now + 1):
            assert content(committed.view(position)) == expected[position]
    committed.tree.check_invariants()


def test_tree_is_made_again_from_its_nodes_with_the_owners_of_ephemerals() -> None:
    random, committed = Random(1), CommittedTree()
    for _ in range(100):
        commit_something(committed, random)
    again = CommittedTree(committed.tree.zxid, committed.tree.nodes.items())
    again.tree.check_invariants()
    zxid = committed.tree.zxid
    assert content(again.view(zxid)) == content(committed.view(zxid))
    owned = [sorted(tree.owned_by(session)) for tree in (again.tree, committed.tree) for session in (1, 2, 3)]
    assert owned[:3] == owned[3:]
    assert any(owned)
