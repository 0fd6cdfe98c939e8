"""One connection to one broker, with the version of each API that both sides speak.

The first request asks for the broker's version ranges, at the newest version that we have; an older broker answers
with the one it has, and we ask again. After that every call uses the highest version that both have.

A broker answers the requests of a connection in order, so requests that wait long (a fetch, a produce with acks=all)
should not share a connection with quick ones: `Cluster` gives each its own.

A request that is not answered in time closes the connection, because all later ones wait behind it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import barnabas
from barnabas.base.buffers import Buffer
from barnabas.net.buffers import ReceiveBuffers
from barnabas.net.channel import Channel
from barnabas.net.errors import ConnectFailed
from barnabas.net.stream import Network
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError, MalformedMessage
from barnabas.wire.fetch_request import FetchRequest, encode_fetch_request
from barnabas.wire.fetch_response import FetchResponse, decode_fetch_response
from barnabas.wire.framing import parse_response_header, request_start
from barnabas.wire.messages import Message, decode_response, write_request
from barnabas.wire.primitives import INT16
from barnabas.wire.produce_request import ProduceRequest, encode_produce_request
from barnabas.wire.produce_response import ProduceResponse, decode_produce_response
from barnabas.wire.values import Values

SOFTWARE_NAME: Final = "barnabas"

_Reply = TypeVar("_Reply")


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    client_id: str = "barnabas"
    connect_timeout_seconds: float = 10.0
    request_timeout_seconds: float = 30.0
    reply_bytes_max: int = 256 << 20
    """A larger reply is taken for garbage: no request of ours asks for so much."""


class BrokerConnection:
    """Created by `open`; the caller of `open` closes it."""

    def __init__(self, channel: Channel, options: ConnectionOptions) -> None:
        self._channel = channel
        self._options = options
        self._versions: dict[int, int] = {}
        self.is_silent = False
        """It was closed because a request was not answered in time: the broker hangs, or cannot be reached."""

    @classmethod
    async def open(
        cls,
        network: Network,
        host: str,
        port: int,
        options: ConnectionOptions,
        buffers: ReceiveBuffers | None = None,
    ) -> "BrokerConnection":
        """NetworkFailed when nothing answers, or when the peer does not speak Kafka's protocol."""
        channel = await Channel.connect(
            network,
            host,
            port,
            timeout_seconds=options.connect_timeout_seconds,
            buffers=buffers,
            reply_bytes_max=options.reply_bytes_max,
        )
        connection = cls(channel, options)
        try:
            async with asyncio.timeout(options.connect_timeout_seconds):
                await connection._negotiate()
        except TimeoutError:
            await channel.close()
            raise ConnectFailed(f"{channel.name} accepts connections, but does not answer") from None
        except MalformedMessage as error:
            await channel.close()
            raise ConnectFailed(f"{channel.name} does not speak Kafka's protocol: {error}") from error
        except BaseException:
            await channel.close()
            raise
        return connection

    @property
    def name(self) -> str:
        return self._channel.name

    @property
    def is_closed(self) -> bool:
        return self._channel.is_closed

    def version(self, api_key: int) -> int:
        """The highest version of an API that both sides speak."""
        version = self._versions.get(api_key)
        if version is None:
            message = (
                f"the broker at {self.name} does not support {APIS[api_key].name} in a version that this client knows"
            )
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
        return version

    def speaks(self, api_key: int) -> bool:
        return api_key in self._versions

    async def call(self, api_key: int, values: Values, *, wait_seconds: float = 0.0) -> Message:
        """Sends a request given by plain values (`wire.values`); the broker may take `wait_seconds` by request."""
        version = self.version(api_key)
        body = write_request(api_key, version, values)
        return await self._request(api_key, version, [body], _decoder(api_key), wait_seconds)

    async def produce(self, request: ProduceRequest) -> ProduceResponse | None:
        """None with acks=0, which has no answer."""
        version = self.version(ApiKey.PRODUCE)
        pieces = encode_produce_request(version, request)
        if request.acks == 0:
            await self._channel.send(self._encoder(ApiKey.PRODUCE, version, pieces))
            return None
        wait_seconds = request.timeout_ms / 1000
        return await self._request(ApiKey.PRODUCE, version, pieces, decode_produce_response, wait_seconds)

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Records in the answer are views of the received frame, which lives as long as they do."""
        version = self.version(ApiKey.FETCH)
        body = encode_fetch_request(version, request)
        return await self._request(
            ApiKey.FETCH, version, [body], decode_fetch_response, wait_seconds=request.wait_ms_max / 1000
        )

    async def close(self) -> None:
        await self._channel.close()

    async def _negotiate(self) -> None:
        newest = APIS[ApiKey.API_VERSIONS].version_max
        ranges = await self._ask_versions(newest)
        if ranges.error_code.value == ErrorCode.UNSUPPORTED_VERSION:
            offered = next((api.max_version for api in ranges.api_keys if api.api_key == ApiKey.API_VERSIONS), 0)
            ranges = await self._ask_versions(min(offered, newest))
        if ranges.error_code.value != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode.of(ranges.error_code.value), f"{self.name} does not tell which API versions it supports"
            )
        for offered in ranges.api_keys:
            api = APIS.get(offered.api_key)
            if api is not None:
                version = min(api.version_max, offered.max_version)
                if version >= max(api.version_min, offered.min_version):
                    self._versions[offered.api_key] = version

    async def _ask_versions(self, version: int) -> Message:
        values = {"client_software_name": SOFTWARE_NAME, "client_software_version": barnabas.__version__}
        body = write_request(ApiKey.API_VERSIONS, version, values)

        def decode(version: int, answer: memoryview) -> Message:
            # A broker that does not know the version answers in version 0, which the error code at the start tells.
            is_refused = len(answer) >= 2 and INT16.unpack_from(answer)[0] == ErrorCode.UNSUPPORTED_VERSION
            return decode_response(ApiKey.API_VERSIONS, 0 if is_refused else version, answer)

        return await self._request(ApiKey.API_VERSIONS, version, [body], decode, wait_seconds=0.0)

    async def _request(
        self,
        api_key: int,
        version: int,
        pieces: Sequence[Buffer],
        decode: Callable[[int, memoryview], _Reply],
        wait_seconds: float,
    ) -> _Reply:
        timeout_seconds = self._options.request_timeout_seconds + wait_seconds
        try:
            async with asyncio.timeout(timeout_seconds):
                frame = await self._channel.request(self._encoder(api_key, version, pieces))
        except TimeoutError:
            self.is_silent = True
            await self._channel.close()
            message = f"the broker at {self.name} did not answer {APIS[api_key].name} within {timeout_seconds:g} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from None
        try:
            header = parse_response_header(api_key, version, frame)
            return decode(version, frame[header.body_position :])
        except MalformedMessage:
            await self._channel.close()
            raise

    def _encoder(self, api_key: int, version: int, pieces: Sequence[Buffer]) -> Callable[[int], list[Buffer]]:
        body_bytes = sum(map(len, pieces))

        def encode(correlation_id: int) -> list[Buffer]:
            return [request_start(api_key, version, correlation_id, self._options.client_id, body_bytes), *pieces]

        return encode


def _decoder(api_key: int) -> Callable[[int, memoryview], Message]:
    return lambda version, body: decode_response(api_key, version, body)
