"""A connection to another broker, opened when something is asked and again after it failed.

A broker that does not answer in time is given up: it may be gone without a word (a pulled cable, a stopped
process), and TCP would wait for many minutes. What was asked then has an unknown outcome.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from barnabas.base.addresses import address_text
from barnabas.net.channel import Channel
from barnabas.net.errors import ChannelClosed
from barnabas.net.stream import Network
from barnabas.wire.apis import ApiKey
from barnabas.wire.framing import parse_response_header, request_start
from barnabas.wire.messages import Message, decode_response_in_steps, write_request
from barnabas.wire.steps import finish_in_turns

_CONNECT_SECONDS: Final = 5.0
_STEPS_TOGETHER: Final = 64


class BrokerLink:
    """Owner: the event loop. Raises `NetworkFailed` when there is no answer."""

    def __init__(self, network: Network, host: str, port: int, client_id: str) -> None:
        self.name = address_text(host, port)
        self._network = network
        self._host = host
        self._port = port
        self._client_id = client_id
        self._channel: Channel | None = None
        self._connecting = asyncio.Lock()
        self._is_closed = False

    async def ask(self, api_key: ApiKey, version: int, values: Mapping[str, Any], answer_seconds: float) -> Message:
        body = write_request(api_key, version, values)
        channel = await self._connected()
        try:
            async with asyncio.timeout(answer_seconds):
                frame = await channel.request(
                    lambda correlation_id: [
                        request_start(api_key, version, correlation_id, self._client_id, len(body)),
                        body,
                    ]
                )
        except TimeoutError:
            await channel.close()
            raise ChannelClosed(f"{self.name} does not answer within {answer_seconds:g} s") from None
        header = parse_response_header(api_key, version, frame)
        steps = decode_response_in_steps(api_key, version, frame[header.body_position :])
        return await finish_in_turns(steps, _STEPS_TOGETHER)

    async def _connected(self) -> Channel:
        async with self._connecting:
            if self._is_closed:
                raise ChannelClosed(f"the connection to {self.name} was given up")
            if self._channel is None or self._channel.is_closed:
                channel = await Channel.connect(self._network, self._host, self._port, timeout_seconds=_CONNECT_SECONDS)
                if self._is_closed:  # meanwhile
                    await channel.close()
                    raise ChannelClosed(f"the connection to {self.name} was given up")
                self._channel = channel
            return self._channel

    async def close(self) -> None:
        """Requests that wait, or that wait for the connection, fail with ChannelClosed."""
        self._is_closed = True
        if self._channel is not None:
            await self._channel.close()
