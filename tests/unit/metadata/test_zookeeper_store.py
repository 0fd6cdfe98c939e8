"""What is the ZooKeeper store's own: opening, access lists, TLS, a stuck loop, ending sessions, and no leaks."""

import asyncio
import os
import shlex
import socket
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo import exceptions as kazoo_errors

from barnabas.base.errors import BarnabasError, InvalidSetting
from barnabas.metadata.errors import (
    AccessDenied,
    BadVersion,
    NoNode,
    OutcomeUnknown,
    RequestRefused,
    SessionLost,
    SessionSuspended,
    StoreUnreachable,
)
from barnabas.metadata.store import Create, SessionState, SetData, Stat
from barnabas.metadata.zookeeper import zookeeper_store
from barnabas.metadata.zookeeper.kazoo_messages import error_of
from barnabas.metadata.zookeeper.session_end import end_session
from barnabas.metadata.zookeeper.zookeeper_calls import ReadCall, ReadKind, WriteCall
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey, TlsFiles, ZooKeeperOptions
from barnabas.metadata.zookeeper.zookeeper_store import ZooKeeperStore
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.store_scenario import PATIENCE_SECONDS, reached
from tests.support.zookeeper import ZooKeeperEnsemble, threads_gone, zookeeper_ensemble

IDENTITY = "barnabas:secret"


def run(options: ZooKeeperOptions, story: Callable[[ZooKeeperEnsemble], Awaitable[None]]) -> None:
    async def main() -> None:
        async with zookeeper_ensemble(options) as ensemble:
            await story(ensemble)

    asyncio.run(main())


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


# Opening


def test_open_without_a_server_says_why_and_leaves_nothing() -> None:
    async def main() -> None:
        options = ZooKeeperOptions(f"127.0.0.1:{free_port()}", connection_timeout_ms=150)
        with pytest.raises(StoreUnreachable, match=rf"{options.hosts}: .*: Connection refused"):
            await ZooKeeperStore.open(options)
        await threads_gone()

    asyncio.run(main())


def test_open_at_a_server_that_does_not_answer_says_so_and_leaves_nothing() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            options = ZooKeeperOptions(f"127.0.0.1:{silent.getsockname()[1]}", connection_timeout_ms=100)
            began = time.monotonic()
            with pytest.raises(StoreUnreachable, match="connected, but there is no answer"):
                await ZooKeeperStore.open(options)
            with pytest.raises(StoreUnreachable, match="connected, but there is no answer"):
                await end_session(options, SessionKey(1, bytes(16)))
            assert time.monotonic() - began < zookeeper_store._CLOSE_SECONDS_MAX, "nobody waits for a first answer"
            await threads_gone()

    asyncio.run(main())


def test_cancelled_open_leaves_nothing() -> None:
    async def main() -> None:
        opening = asyncio.create_task(ZooKeeperStore.open(ZooKeeperOptions(f"127.0.0.1:{free_port()}")))
        await asyncio.sleep(0.05)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await threads_gone()

    asyncio.run(main())


def test_open_finds_the_server_among_those_that_are_down(zookeeper: ZooKeeperOptions) -> None:
    async def main() -> None:
        down = f"127.0.0.1:{free_port()}"
        store = await ZooKeeperStore.open(replace(zookeeper, hosts=f"{down},{zookeeper.hosts},{down}"))
        await store.create("/a")
        await store.close()
        await threads_gone()

    asyncio.run(main())


# Leaving nothing behind


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_sessions_leave_no_files_and_no_threads_however_they_end(zookeeper: ZooKeeperOptions) -> None:
    async def end_all() -> None:
        closed, expired, suspended = [await ZooKeeperStore.open(zookeeper) for _ in range(3)]
        await closed.close()
        assert await end_session(zookeeper, expired.session_key)
        await reached(expired, SessionState.LOST)
        suspended._client.abandon()
        await reached(suspended, SessionState.LOST)
        await threads_gone()

    async def main() -> None:
        await end_all()
        before = open_files()
        for _ in range(3):
            await end_all()
        assert open_files() == before
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_close_gives_up_on_a_server_that_does_not_answer(
    zookeeper: ZooKeeperOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_store, "_CLOSE_SECONDS_MAX", 0.05)

    async def story(ensemble: ZooKeeperEnsemble) -> None:
        store = await ensemble.session()
        ensemble.proxy(store).stop_reading()
        write = asyncio.ensure_future(store.create("/a"))
        await asyncio.sleep(0)
        async with asyncio.timeout(3.0):  # kazoo itself would notice after six
            await store.close()
            await threads_gone()
        with pytest.raises(OutcomeUnknown):
            await write

    run(zookeeper, story)


# Calls


def test_calls_never_block_the_event_loop(zookeeper: ZooKeeperOptions) -> None:
    """Not even many of them, while the connection's thread is stuck with a request that nobody reads."""

    async def story(ensemble: ZooKeeperEnsemble) -> None:
        store = await ensemble.session()
        ensemble.proxy(store).stop_reading()
        large = [asyncio.ensure_future(store.set("/", bytes(1_000_000), version=7)) for _ in range(12)]
        await asyncio.sleep(0.1)
        began = time.monotonic()
        small = [asyncio.ensure_future(store.exists("/")) for _ in range(1000)]
        await asyncio.sleep(0)
        assert time.monotonic() - began < 1.0
        ensemble.proxy(store).mend()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert {type(answer) for answer in await asyncio.gather(*small)} == {Stat}
            refusals = await asyncio.gather(*large, return_exceptions=True)
        assert {type(refusal) for refusal in refusals} == {BadVersion}

    run(zookeeper, story)


def test_many_reads_leave_others_their_turn(zookeeper: ZooKeeperOptions) -> None:
    async def story(ensemble: ZooKeeperEnsemble) -> None:
        store = await ensemble.session()
        await store.multi([Create("/a"), *(Create(f"/a/{number}") for number in range(500))])
        reading = asyncio.ensure_future(store.get_many([f"/a/{number}" for number in range(600)]))
        await asyncio.sleep(0)
        await store.create("/b")
        assert not reading.done()
        assert [node is not None for node in await reading] == [True] * 500 + [False] * 100

    run(zookeeper, story)


def test_cancelled_caller_leaves_the_others_alone(zookeeper: ZooKeeperOptions) -> None:
    async def story(ensemble: ZooKeeperEnsemble) -> None:
        store = await ensemble.session()
        calls = [asyncio.ensure_future(store.create(f"/{number}")) for number in range(300)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert {str(number) for number in range(1, 300, 2)} <= set(await store.children("/"))

    run(zookeeper, story)


@pytest.mark.parametrize(
    ("error", "of_a_read", "of_a_write"),
    [
        (kazoo_errors.ConnectionLoss(), SessionSuspended, OutcomeUnknown),
        (kazoo_errors.SessionMovedError(), SessionSuspended, OutcomeUnknown),
        (kazoo_errors.SessionExpiredError(), SessionLost, SessionLost),
        (kazoo_errors.ConnectionClosedError(), SessionLost, SessionLost),
        (kazoo_errors.NoNodeError(), NoNode, NoNode),
        (kazoo_errors.NoAuthError(), AccessDenied, AccessDenied),
        (kazoo_errors.ThrottledOpError(), RequestRefused, RequestRefused),
        (ValueError("not an answer"), SessionSuspended, OutcomeUnknown),
    ],
)
def test_errors_of_kazoo_become_ours(
    error: Exception, of_a_read: type[BarnabasError], of_a_write: type[BarnabasError]
) -> None:
    assert type(error_of(ReadCall(ReadKind.DATA, "/a"), error)) is of_a_read
    assert type(error_of(WriteCall(()), error)) is of_a_read, "an empty transaction changes nothing"
    written = error_of(WriteCall([SetData("/a", b""), SetData("/b", b"")]), error)
    assert type(written) is of_a_write
    assert getattr(written, "path", "/a") == "/a"


# Ending sessions


def test_ended_session_is_gone_with_its_ephemerals_and_cannot_be_ended_again(zookeeper: ZooKeeperOptions) -> None:
    async def story(ensemble: ZooKeeperEnsemble) -> None:
        dead, other = await ensemble.session(), await ensemble.session()
        await dead.create("/e", ephemeral=True)
        key = dead.session_key
        assert key.session_id == dead.session_id
        assert not await end_session(zookeeper, replace(key, password=bytes(16))), "a wrong password ends nothing"
        assert await other.exists("/e") is not None
        assert await end_session(zookeeper, key)
        assert await other.exists("/e") is None
        assert not await end_session(zookeeper, key)

    run(zookeeper, story)


def test_session_of_a_stuck_event_loop_is_ended_while_it_is_stuck(
    zookeeper: ZooKeeperOptions, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        store = await ZooKeeperStore.open(replace(zookeeper, session_timeout_ms=1_500))
        other = await ZooKeeperStore.open(zookeeper)
        states: list[SessionState] = []
        store.add_session_listener(states.append)
        await store.create("/e", ephemeral=True)
        assert store._client.ended.wait(PATIENCE_SECONDS), "the event loop is stuck here"
        assert await other.exists("/e") is None
        await reached(store, SessionState.LOST)
        assert states == [SessionState.LOST]
        await other.close()
        await threads_gone()

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records if "stuck" in record.getMessage()]


# Access lists and TLS


def test_nodes_belong_to_the_identity_that_created_them(zookeeper: ZooKeeperOptions) -> None:
    async def story(ensemble: ZooKeeperEnsemble) -> None:
        owner = await ensemble.session(identity=IDENTITY, has_access_lists=True)
        await owner.multi([Create("/a"), Create("/config"), Create("/config/users", b"secret"), Create("/consumers")])
        stranger = await ensemble.session()
        assert (await stranger.get("/a")).data == b""
        await stranger.create("/consumers/c")
        denied: list[tuple[str, Awaitable[object]]] = [
            ("/a", stranger.set("/a", b"x")),
            ("/a", stranger.create("/a/b")),
            ("/", stranger.delete("/a")),
            ("/config/users", stranger.get("/config/users")),
            ("/config/users", stranger.children("/config/users")),
            ("/config/users", stranger.multi([SetData("/consumers", b"x"), SetData("/config/users", b"x")])),
        ]
        for path, attempt in denied:
            with pytest.raises(AccessDenied) as caught:
                await attempt
            assert caught.value.path == path
        colleague = await ensemble.session(identity=IDENTITY)
        assert (await colleague.get("/config/users")).data == b"secret"
        await ensemble.suspend(colleague)
        await ensemble.resume(colleague)
        await colleague.delete("/a")

    run(zookeeper, story)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The paths of a certificate for localhost, and of its key."""
    directory = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
        " -addext subjectAltName=DNS:localhost -keyout key.pem -out certificate.pem"
    )
    try:
        subprocess.run(shlex.split(command), cwd=directory, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed, and makes the certificate")
    return str(directory / "certificate.pem"), str(directory / "key.pem")


def test_session_over_tls(zookeeper: ZooKeeperOptions, certificate: tuple[str, str]) -> None:
    """The proxy puts several answers into one record of TLS: none may stay there until another one comes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    async def main() -> None:
        host, _, port = zookeeper.hosts.partition(":")
        async with CuttableProxy(host, int(port), context) as proxy:
            options = replace(
                zookeeper, hosts=f"localhost:{proxy.port}", tls=TlsFiles(certificate[0]), connection_timeout_ms=400
            )
            store = await ZooKeeperStore.open(options)
            await store.multi([Create("/a"), *(Create(f"/a/{number}", bytes(1000)) for number in range(200))])
            async with asyncio.timeout(PATIENCE_SECONDS):
                for _ in range(2):
                    assert None not in await store.get_many([f"/a/{number}" for number in range(200)])
            proxy.cut()
            await reached(store, SessionState.SUSPENDED)
            proxy.mend()
            await reached(store, SessionState.CONNECTED)
            await store.close()
            with pytest.raises(StoreUnreachable, match="certificate"):
                await ZooKeeperStore.open(replace(options, tls=TlsFiles()))
            with pytest.raises(StoreUnreachable, match=r"doesn't match|not valid for"):
                await ZooKeeperStore.open(replace(options, hosts=f"127.0.0.1:{proxy.port}"))
        await threads_gone()

    asyncio.run(main())


def test_bad_tls_files_are_named_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "bad.pem").write_text("nothing")
        for files in (TlsFiles(str(tmp_path / "missing.pem")), TlsFiles(certificate=str(tmp_path / "bad.pem"))):
            with pytest.raises(InvalidSetting, match=r"(missing|bad)\.pem"):
                await ZooKeeperStore.open(ZooKeeperOptions("localhost", tls=files))
        await threads_gone()

    asyncio.run(main())


def test_server_has_memory_for_many_large_transactions(zookeeper: ZooKeeperOptions) -> None:
    """The server keeps the last ones in memory. In a cluster with many partitions each has hundreds of writes."""

    async def main() -> None:
        store = await ZooKeeperStore.open(zookeeper)
        paths = [f"/state-{number}" for number in range(500)]
        await store.multi([Create(path) for path in paths])
        for number in range(30):
            await store.multi([SetData(path, b"%01500d" % number) for path in paths])
        assert (await store.get(paths[0])).stat.version == 30
        await store.close()

    asyncio.run(main())
