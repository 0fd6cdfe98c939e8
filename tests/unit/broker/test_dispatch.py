"""A mistake of the broker's own in one request ends that request's connection, and nobody else's."""

import asyncio
import logging
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.dispatch import READING, Awaited
from barnabas.broker.request import Request
from barnabas.wire.apis import APIS, ApiKey
from tests.support.broker_parts import served_broker
from tests.support.frame_client import connected
from tests.support.network import is_closed_by_peer, run

CLUSTER: tuple[ApiKey, int, dict[str, Any]] = (ApiKey.DESCRIBE_CLUSTER, 0, {})
HEARTBEAT = (ApiKey.HEARTBEAT, 0, {"group_id": "g", "generation_id": 1, "member_id": "m"})
FETCH = (
    ApiKey.FETCH,
    4,
    {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "isolation_level": 0, "topics": []},
)


CHANGING = {
    *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP),
    *(ApiKey.SYNC_GROUP, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.INIT_PRODUCER_ID),
    *(ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_CONFIGS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_GROUPS),
    *(ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.OFFSET_DELETE, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.API_VERSIONS),
    *(ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS),
}
"""They change something, if only what is known of a connection or a fetch session: they are done once they came."""


def test_every_api_is_known_to_change_something_or_to_read_only() -> None:
    assert {*APIS} == READING | CHANGING
    assert not READING & CHANGING


def bugs(broker: Broker) -> dict[tuple[str, ...], float]:
    return {labels: counter.value for labels, counter in broker.dispatcher.measures.bugs.items()}


def replace_handler(broker: Broker, api_key: ApiKey, handler: Any) -> Any:
    """Has requests of an API served by another coroutine; returns the one that served them."""
    route = broker.dispatcher.routes[api_key]
    assert isinstance(route.handler, partial), "what kio decodes is served by a coroutine"
    served = route.handler.args[0]
    route.handler = partial(broker.dispatcher._later, Awaited(served.view, handler))
    return served.handler


def spoil(broker: Broker, api_key: ApiKey, error: Exception) -> None:
    """Puts a mistake into a handler, which nothing else could."""

    def direct(request: Request, asked: Any) -> None:
        raise error

    async def handler(request: Request, asked: Any) -> Any:
        raise error

    route = broker.dispatcher.routes[api_key]
    if isinstance(route.handler, partial):
        replace_handler(broker, api_key, handler)
    else:
        route.handler = direct


@pytest.mark.parametrize("asked", [CLUSTER, HEARTBEAT, FETCH], ids=["coroutine", "direct", "fetch"])
def test_mistake_closes_its_connection_alone_and_is_counted(
    tmp_path: Path, asked: tuple[ApiKey, int, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as served, connected(served) as witness:
            spoil(served.broker, asked[0], KeyError("a mistake"))
            for _ in range(3):
                async with connected(served) as client:
                    client.send(*asked)
                    assert await is_closed_by_peer(client.reader)
            assert await witness.is_served()
            assert list(bugs(served.broker).values()) == [3]
            assert served.broker.failure is None

    with caplog.at_level(logging.ERROR):
        run(scenario())
    traces = [record for record in caplog.records if record.exc_info]
    assert len(traces) == 1, "the trace is logged once"


@pytest.mark.parametrize(
    "values",
    [
        {"brokers": [{"broker_id": 2**40, "host": "h", "port": 1}], "cluster_id": "c"},
        {"brokers": [{"broker_id": 1, "host": None, "port": 1}], "cluster_id": "c"},
        {"brokers": None, "cluster_id": "c"},
        {"brokers": [], "cluster_id": None},
        {"brokers": []},
    ],
    ids=["number out of range", "null in an array", "null array", "null text", "missing"],
)
def test_mistake_in_an_answers_values_closes_its_connection_alone(tmp_path: Path, values: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as served, connected(served) as witness:

            async def handler(request: Request, asked: Any) -> Any:
                return values

            replace_handler(served.broker, ApiKey.DESCRIBE_CLUSTER, handler)
            async with connected(served) as client:
                client.send(*CLUSTER)
                assert await is_closed_by_peer(client.reader)
            assert await witness.is_served()
            assert served.broker.failure is None, "the broker stops"
            assert bugs(served.broker) == {("DescribeCluster",): 1}

    run(scenario())


@pytest.mark.parametrize("asked", [CLUSTER, HEARTBEAT], ids=["coroutine", "direct"])
def test_failed_assertion_stops_the_broker(tmp_path: Path, asked: tuple[ApiKey, int, dict[str, Any]]) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as served, connected(served) as client:
            spoil(served.broker, asked[0], AssertionError("the state is wrong"))
            client.send(*asked)
            with pytest.raises(AssertionError, match="the state is wrong"):
                await served.broker.wait_stopped()

    run(scenario())


def test_mistake_in_work_that_waited_for_its_turn_closes_its_connection_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joins come in storms, and are worked on in later turns of the loop."""

    def mistaken(*_: object) -> None:
        raise KeyError("a mistake")

    join = {
        "group_id": "g",
        "session_timeout_ms": 6000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }

    async def scenario() -> None:
        async with served_broker(tmp_path) as served, connected(served) as witness:
            monkeypatch.setattr("barnabas.broker.handlers.join_group.ask_group_in_turn", mistaken)
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(connected(served)) for _ in range(30)]
                for client in clients:
                    client.send(ApiKey.JOIN_GROUP, 0, join)
                assert all([await is_closed_by_peer(client.reader) for client in clients])
            assert await witness.is_served()
            assert bugs(served.broker) == {("JoinGroup",): 30}

    run(scenario())


def test_request_that_changes_something_is_carried_out_though_its_client_has_gone(tmp_path: Path) -> None:
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}

    async def scenario() -> None:
        async with served_broker(tmp_path) as served:
            async with connected(served) as client:
                client.send(ApiKey.CREATE_TOPICS, 4, {"topics": [topic], "timeout_ms": 1000, "validate_only": False})
                await client.writer.drain()
            await served.broker.replicas.wait_for(lambda image: "orders" in image.topics)

    run(scenario())


def test_request_whose_client_has_gone_is_dropped(tmp_path: Path) -> None:
    """Otherwise clients that ask for much and go at once would pile up work."""

    async def scenario() -> None:
        async with served_broker(tmp_path) as served, connected(served) as witness:
            begun: list[Request] = []

            async def counted(request: Request, asked: Any) -> Any:
                begun.append(request)
                return await handle(request, asked)

            handle = replace_handler(served.broker, ApiKey.DESCRIBE_GROUPS, counted)
            names = [f"group-{number}" for number in range(20_000)]
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(connected(served)) for _ in range(20)]
                for client in clients:
                    client.send(ApiKey.DESCRIBE_GROUPS, 5, {"groups": names})
                    await client.writer.drain()
            while served.broker.dispatcher._tasks:
                assert await witness.is_served()
            assert len(begun) < len(clients)

    run(scenario())


@pytest.mark.parametrize("is_late", [False, True], ids=["the connection is open", "it has ended"])
def test_end_of_a_connection_is_told_to_who_asked_last(tmp_path: Path, is_late: bool) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as served:
            told: list[str] = []
            is_served, is_told, may_ask = asyncio.Event(), asyncio.Event(), asyncio.Event()

            def tell(what: str) -> None:
                told.append(what)
                is_told.set()

            async def handler(request: Request, asked: Any) -> Any:
                request.call_when_closed(partial(tell, "first"))
                is_served.set()
                await may_ask.wait()
                request.call_when_closed(partial(tell, "last"))
                return {"brokers": [], "cluster_id": "c"}

            replace_handler(served.broker, ApiKey.DESCRIBE_CLUSTER, handler)
            async with connected(served) as client:
                client.send(*CLUSTER)
                await is_served.wait()
                if not is_late:
                    may_ask.set()
                    assert await client.reader.read(1)
                    assert told == []
            if is_late:
                await is_told.wait()
                is_told.clear()
                may_ask.set()
            await is_told.wait()
            assert told == (["first", "last"] if is_late else ["last"])

    run(scenario())
