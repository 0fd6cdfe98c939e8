"""What every `MetadataStore` must do.

| class | what it is about |
|---|---|
| `StoreContract` (here) | nodes, versions, transactions, sizes, order; with the two below |
| `WatchContract` (store_contract_watches.py) | watches |
| `EphemeralContract` (store_contract_sessions.py) | ephemerals, and sessions that are closed |
| `InterruptionContract` (store_contract_sessions.py) | sessions that are suspended or expire, and unknown outcomes |

An implementation subclasses `StoreContract` and `InterruptionContract`, and says how to open sessions and what may
happen to them: its `Ensemble` (store_scenario.py).
"""

import asyncio

import pytest

from barnabas.metadata.errors import BadVersion, InvalidPath, NodeExists, NoNode, NotEmpty, StoreError, WriteTooLarge
from barnabas.metadata.limits import OPERATION_BYTES, WRITE_BYTES_MAX
from barnabas.metadata.store import (
    NO_OWNER,
    Check,
    Create,
    Delete,
    MetadataStore,
    SessionState,
    SetData,
    Stat,
    ensure_paths,
)
from tests.support.store_contract_sessions import EphemeralContract
from tests.support.store_contract_watches import WatchContract
from tests.support.store_scenario import Ensemble, Recorder, scenario


class StoreContract(WatchContract, EphemeralContract):
    # Nodes and versions

    @scenario
    async def test_created_node_is_read_back_with_its_stat(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        assert await store.create("/a", b"data") == "/a"
        data, stat = await store.get("/a")
        assert data == b"data"
        assert (stat.version, stat.children_count, stat.ephemeral_owner) == (0, 0, NO_OWNER)
        assert stat.czxid == stat.mzxid > 0
        assert stat.created_ms == stat.modified_ms > 0
        assert await store.exists("/a") == stat

    @scenario
    async def test_set_raises_version_and_keeps_creation(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a", b"1")
        created = (await store.get("/a")).stat
        stat = await store.set("/a", b"2", 0)
        assert stat.version == 1
        assert stat.czxid == created.czxid
        assert stat.mzxid > created.mzxid
        assert (await store.set("/a", b"3")).version == 2
        assert await store.get("/a") == (b"3", await store.exists("/a"))

    @scenario
    async def test_write_with_other_version_is_refused(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a", b"1")
        await store.set("/a", b"2")
        for version in (0, 2, 100):
            with pytest.raises(BadVersion):
                await store.set("/a", b"x", version)
            with pytest.raises(BadVersion):
                await store.delete("/a", version)
        assert (await store.get("/a")).data == b"2"
        await store.delete("/a", 1)
        assert await store.exists("/a") is None

    @scenario
    async def test_missing_node_is_said(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        for attempt in (
            store.get("/a"),
            store.children("/a"),
            store.set("/a", b""),
            store.delete("/a"),
            store.create("/a/b"),
            store.multi([Check("/a")]),
        ):
            with pytest.raises(NoNode) as caught:
                await attempt
            assert caught.value.path == "/a"
        assert await store.exists("/a") is None
        assert await store.get_many(["/a", "/"]) == [None, await store.get("/")]

    @scenario
    async def test_second_create_is_refused(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a", b"1")
        for path in ("/a", "/"):
            with pytest.raises(NodeExists):
                await store.create(path, b"2")
        assert (await store.get("/a")).data == b"1"

    @scenario
    async def test_node_with_children_cannot_be_deleted(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a")
        await store.create("/a/b")
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        await store.delete("/a/b")
        await store.delete("/a")
        with pytest.raises(InvalidPath):
            await store.delete("/")

    @scenario
    async def test_children_are_sorted_names(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a")
        for name in ("10", "9", "b", "B"):
            await store.create(f"/a/{name}")
        await store.create("/a/b/deeper")
        assert await store.children("/a") == ["10", "9", "B", "b"]
        assert (await store.get("/a")).stat.children_count == 4
        before = (await store.get("/a")).stat.children_version
        await store.delete("/a/9")
        assert (await store.get("/a")).stat.children_version == before + 1

    @scenario
    async def test_recreated_node_starts_anew(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a", b"1")
        await store.set("/a", b"2")
        before = (await store.get("/a")).stat
        await store.delete("/a")
        await store.create("/a", b"3")
        after = (await store.get("/a")).stat
        assert after.version == 0
        assert after.czxid > before.mzxid

    @scenario
    async def test_bad_paths_are_refused_by_every_operation(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        for path in (
            "",
            "a",
            "/a/",
            "//",
            "/a//b",
            "/.",
            "/a/..",
            "/a\x00",
            "/\x1f",
            "/\x7f",
            "/\ue000",
            "/\U0001f600",
        ):
            for attempt in (store.create(path), store.get(path), store.exists(path), store.children(path)):
                with pytest.raises(InvalidPath):
                    await attempt
            for write in (store.set(path, b""), store.delete(path), store.multi([Check(path)])):
                with pytest.raises(InvalidPath):
                    await write
        for path in ("/a.b", "/...", "/<default>", "/é", "/a b"):
            assert await store.create(path) == path

    @scenario
    async def test_sequential_names_are_never_given_twice(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a")
        assert await store.create("/a/n-", sequential=True) == "/a/n-0000000000"
        assert await store.create("/a/other") == "/a/other"
        second = await store.create("/a/n-", b"x", sequential=True)
        assert second == "/a/n-0000000002"
        await store.delete(second)
        assert await store.create("/a/n-", sequential=True) == "/a/n-0000000003"
        assert await store.create("/a/", sequential=True) == "/a/0000000004"

    @scenario
    async def test_ensure_paths_makes_what_is_missing(self, ensemble: Ensemble) -> None:
        one, two = await ensemble.session(), await ensemble.session()
        await one.create("/a", b"kept")
        await asyncio.gather(ensure_paths(one, ["/a/b/c", "/d"]), ensure_paths(two, ["/d/e", "/a/b"]))
        assert (await one.get("/a")).data == b"kept"
        assert await one.get_many(["/a/b/c", "/d/e", "/a/b/x"]) == [
            await one.get("/a/b/c"),
            await one.get("/d/e"),
            None,
        ]

    # Multi

    @scenario
    async def test_multi_does_all_at_one_position(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/gone")
        await store.create("/kept", b"1")
        results = await store.multi(
            [
                Create("/a", b"data"),
                Create("/a/b"),
                Create("/a/n-", sequential=True),
                SetData("/kept", b"2", 0),
                Check("/kept", 1),
                Delete("/gone"),
            ]
        )
        assert results[:3] == ["/a", "/a/b", "/a/n-0000000001"]
        assert isinstance(results[3], Stat)
        assert results[3].version == 1
        assert results[4:] == [None, None]
        assert await store.children("/a") == ["b", "n-0000000001"]
        assert await store.exists("/gone") is None
        stat = (await store.get("/a/b")).stat
        assert stat.czxid == (await store.get("/a")).stat.czxid == (await store.get("/kept")).stat.mzxid

    @scenario
    async def test_refused_multi_does_nothing(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a", b"1")
        before = await store.get("/")
        recorder = Recorder(store)
        await store.children("/", recorder)
        await store.get("/a", recorder)
        refusals: list[tuple[type[StoreError], Create | SetData | Delete | Check]] = [
            (NodeExists, Create("/b")),
            (NoNode, Create("/x/y")),
            (BadVersion, SetData("/a", b"3", 0)),
            (BadVersion, Check("/a", 7)),
            (NoNode, Check("/x")),
            (NoNode, Delete("/x")),
            (NotEmpty, Delete("/b")),
            (InvalidPath, Create("relative")),
        ]
        for error, operation in refusals:
            with pytest.raises(error):
                await store.multi([Create("/b"), Create("/b/c"), SetData("/a", b"2"), operation, Create("/z")])
            assert await store.get("/a") == (b"1", await store.exists("/a"))
            assert await store.children("/") == await store.children("/", recorder)
            assert await store.exists("/b") is None
        assert await store.get("/") == before
        assert await recorder.settled() == []

    @scenario
    async def test_multi_checks_see_its_own_earlier_operations(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.multi([Create("/a"), SetData("/a", b"1", 0), SetData("/a", b"2", 1), Check("/a", 2)])
        await store.multi([Create("/a/b"), Delete("/a/b"), Delete("/a"), Create("/a", b"new")])
        assert await store.get("/a") == (b"new", await store.exists("/a"))

    @scenario
    async def test_racing_conditional_writes_let_one_win(self, ensemble: Ensemble) -> None:
        sessions = [await ensemble.session() for _ in range(4)]
        await sessions[0].create("/a", b"")

        async def attempt(store: MetadataStore, number: int) -> int:
            try:
                await store.multi([SetData("/a", str(number).encode(), 0), Create(f"/won-{number}")])
            except BadVersion:
                return 0
            return 1

        outcomes = await asyncio.gather(*(attempt(store, number) for number, store in enumerate(sessions)))
        assert sum(outcomes) == 1
        winner = outcomes.index(1)
        assert (await sessions[winner].get("/a")).data == str(winner).encode()
        assert await sessions[winner].exists(f"/won-{winner}") is not None

    # Order

    @scenario
    async def test_writes_of_a_session_keep_their_order(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a")
        writes = [asyncio.ensure_future(store.create(f"/a/{number:03}")) for number in range(50)]
        writes += [asyncio.ensure_future(store.set("/a", str(number).encode())) for number in range(50)]
        await asyncio.gather(*writes)
        nodes = await store.get_many([f"/a/{number:03}" for number in range(50)])
        positions = [node.stat.czxid for node in nodes if node is not None]
        assert len(positions) == 50
        assert positions == sorted(set(positions))
        assert (await store.get("/a")).data == b"49"

    # Sizes

    @scenario
    async def test_largest_node_is_written_and_read_back(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        largest = b"x" * (WRITE_BYTES_MAX - OPERATION_BYTES - len("/a"))
        await store.create("/a", largest)
        assert (await store.get("/a")).data == largest
        await store.set("/a", largest[::-1])
        await store.multi([Delete("/a"), Check("/")])

    @scenario
    async def test_write_that_is_too_large_is_refused_and_the_session_lives(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        states: list[SessionState] = []
        store.add_session_listener(states.append)
        await store.create("/a")
        too_much = b"x" * (WRITE_BYTES_MAX - OPERATION_BYTES - len("/a") + 1)
        halves = [SetData("/a", too_much[: len(too_much) // 2]), Create("/b", too_much[: len(too_much) // 2 + 1])]
        for attempt in (store.set("/a", too_much), store.create("/b", too_much), store.multi(halves)):
            with pytest.raises(WriteTooLarge, match="the limit is 1,048,575") as caught:
                await attempt
            assert caught.value.path in ("/a", "/b")
        assert caught.value.path == "/b", "the largest of them"
        with pytest.raises(WriteTooLarge):
            await store.multi([Create(f"/{number}-{'é' * 100}") for number in range(3000)])
        assert await store.children("/") == ["a"]
        assert states == []
