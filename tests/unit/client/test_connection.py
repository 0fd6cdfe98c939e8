"""The first words with a broker: which versions both speak, and what happens when nobody does."""

import asyncio

import pytest

from barnabas.client.broker_connection import BrokerConnection, ConnectionOptions
from barnabas.net.errors import ChannelClosed, ConnectFailed
from barnabas.net.sockets import SocketNetwork
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.network import run
from tests.support.played_cluster import Fault, PlayedCluster


async def _open(port: int, **options: float) -> BrokerConnection:
    return await BrokerConnection.open(SocketNetwork(), "127.0.0.1", port, ConnectionOptions(**options))  # type: ignore[arg-type]


def test_newest_version_of_both_sides_is_used() -> None:
    async def scenario() -> None:
        cluster = PlayedCluster()
        cluster.versions_max = {ApiKey.METADATA: 9, ApiKey.FETCH: 3}
        async with cluster:
            connection = await _open(cluster.port(1))
            assert connection.version(ApiKey.METADATA) == 9
            assert connection.version(ApiKey.PRODUCE) == APIS[ApiKey.PRODUCE].version_max
            assert not connection.speaks(ApiKey.FETCH), "the broker's newest is older than our oldest"
            with pytest.raises(KafkaError, match="does not support Fetch") as refused:
                connection.version(ApiKey.FETCH)
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
            await connection.close()

    run(scenario())


def test_broker_that_does_not_know_the_newest_version_of_api_versions_is_asked_again() -> None:
    async def scenario() -> None:
        asked = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for body in (
                b"\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x02",
                b"\x00\x00\x00\x00\x00\x01\x00\x03\x00\x00\x00\x05",
            ):
                length = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(length)
                asked.append(int.from_bytes(frame[2:4], "big"))
                # Version 2 has a throttle time at its end.
                reply = frame[4:8] + body + (b"\x00\x00\x00\x00" if len(asked) == 2 else b"")
                writer.write(len(reply).to_bytes(4, "big") + reply)
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            connection = await _open(server.sockets[0].getsockname()[1])
            assert asked == [4, 2]
            assert connection.version(ApiKey.METADATA) == 5
            await connection.close()

    run(scenario())


def test_peer_that_takes_connections_and_says_nothing_is_given_up() -> None:
    async def scenario() -> None:
        cluster = PlayedCluster()
        cluster.faults[ApiKey.API_VERSIONS].append(Fault.SILENCE)
        async with cluster:
            with pytest.raises(ConnectFailed, match="accepts connections, but does not answer"):
                await _open(cluster.port(1), connect_timeout_seconds=0.05)

    run(scenario())


def test_peer_that_speaks_another_protocol_is_given_up() -> None:
    async def scenario() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            with pytest.raises(ChannelClosed, match="a web server answers there, in HTTP"):
                await _open(server.sockets[0].getsockname()[1])

    run(scenario())


def test_request_that_is_not_answered_in_time_closes_the_connection() -> None:
    async def scenario() -> None:
        async with PlayedCluster() as cluster:
            connection = await _open(cluster.port(1), request_timeout_seconds=0.05)
            cluster.faults[ApiKey.METADATA].append(Fault.SILENCE)
            with pytest.raises(KafkaError, match=r"did not answer Metadata within 0\.05 s") as late:
                await connection.call(ApiKey.METADATA, {"topics": []})
            assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert connection.is_closed

    run(scenario())
