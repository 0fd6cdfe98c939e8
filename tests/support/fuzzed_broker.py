"""Sends fuzzed requests to a broker, alone or a few in one go, and looks whether each is answered as its version's
schema says. Connections whose request waits are kept for a while, so that groups get several members.

What a request may not do: leave another connection without an answer, be answered by something that cannot be read, or
be answered not at all. A closed connection is an answer, too.
"""

import socket
import struct
from contextlib import suppress
from typing import Any

from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import MalformedResponse
from barnabas.wire.framing import parse_response_header
from barnabas.wire.messages import response_schema
from barnabas.wire.reader import message_reader
from tests.support.request_fuzzer import FuzzedRequest, RequestFuzzer
from tests.support.side_by_side import CLOSED, Side, read_exactly

ANSWER_SECONDS = 30.0
WAITED_SECONDS = 0.03
_WAITING = (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
"""What these ask for may take as long as they say, so that the test goes on without the answer."""
_TOGETHER_MAX = 6
_HELD_MAX = 6
_LENGTH = struct.Struct(">i")
_EVERYTHING = {
    "resources": [],
    "include_synonyms": True,
    "include_documentation": True,
}


class FuzzedBroker:
    def __init__(self, bootstrap: str, fuzzer: RequestFuzzer) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self._fuzzer = fuzzer
        self._socket: socket.socket | None = None
        self._held: list[socket.socket] = []
        self._witness = Side("Barnabas", bootstrap)
        self.answered = 0
        self.closed = 0
        self.waited = 0

    def close(self) -> None:
        self._disconnect()
        for held in self._held:
            held.close()
        self._witness.close()

    def throw(self, count: int) -> None:
        """So many requests; every few of them the other connection asks, too."""
        together: list[FuzzedRequest] = []
        for number in range(count):
            request = self._fuzzer.draw()
            together.append(request)
            is_last = not request.is_answered or request.api_key in _WAITING  # nothing is answered behind it
            if is_last or len(together) > number % _TOGETHER_MAX:
                self._throw(together)
                together = []
            if number % 50 == 0:
                self._check_witness()
        self._throw(together)
        self._check_witness()

    def _throw(self, requests: list[FuzzedRequest]) -> None:
        request = None
        try:
            self._send(b"".join(one.frame for one in requests))
            for request in requests:
                frame = self._receive(request)
                if frame is None:
                    break
                self.answered += 1
                self._fuzzer.learn(request.api_key, _decoded(request, frame))
            else:
                return
        except TimeoutError:
            assert request is not None
            assert request.api_key in _WAITING, f"no answer to {_told(request)}"
            self.waited += 1
            self._hold()
            return
        except ConnectionError:
            pass
        self._disconnect()
        self.closed += 1

    def _send(self, frames: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=ANSWER_SECONDS)
        self._socket.settimeout(ANSWER_SECONDS)
        self._socket.sendall(frames)

    def _receive(self, request: FuzzedRequest) -> bytes | None:
        assert self._socket is not None
        if not request.is_answered:
            return None
        if request.api_key in _WAITING:
            self._socket.settimeout(WAITED_SECONDS)
        length = read_exactly(self._socket, _LENGTH.size)
        self._socket.settimeout(ANSWER_SECONDS)  # what has begun must end
        return None if length is None else read_exactly(self._socket, *_LENGTH.unpack(length))

    def _hold(self) -> None:
        """The request may go on waiting, for others that are sent meanwhile."""
        assert self._socket is not None
        self._held.append(self._socket)
        self._socket = None
        if len(self._held) > _HELD_MAX:
            self._held.pop(0).close()

    def _disconnect(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None

    # -- the other connection ------------------------------------------------------------------------------------

    def _check_witness(self) -> None:
        asked = {"topics": [], "allow_auto_topic_creation": False}
        assert self._ask(ApiKey.METADATA, 12, asked)["brokers"], "the broker does not know itself"

    def _ask(self, api_key: ApiKey, version: int, values: Any) -> Any:
        answer = self._witness.ask(api_key, version, values)
        assert answer != CLOSED, f"the broker closed a good connection at {APIS[api_key].name} {version}"
        return answer

    def describe_everything(self) -> None:
        """All that the requests left behind is shown, in every version."""
        topics = [one["name"] for one in self._ask(ApiKey.METADATA, 1, {"topics": None})["topics"]]
        self._in_every_version(ApiKey.METADATA, {"topics": None}, version_min=1)
        resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in topics]
        resources += [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            for kind, name in ((4, "1"), (4, ""), (8, "1"))
        ]
        self._in_every_version(ApiKey.DESCRIBE_CONFIGS, {**_EVERYTHING, "resources": resources})
        self._in_every_version(ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []})
        groups = [one["group_id"] for one in self._ask(ApiKey.LIST_GROUPS, 4, {"states_filter": []})["groups"]]
        self._in_every_version(ApiKey.DESCRIBE_GROUPS, {"groups": groups})
        for version in range(2, 8):
            for group in groups:
                self._ask(ApiKey.OFFSET_FETCH, version, {"group_id": group, "topics": None})
        for version in range(8, 11):
            wanted = [{"group_id": group, "topics": None} for group in groups]
            self._ask(ApiKey.OFFSET_FETCH, version, {"groups": wanted})
        self._in_every_version(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
        producers = [{"name": name, "partition_indexes": [0, 1]} for name in topics]
        self._in_every_version(ApiKey.DESCRIBE_PRODUCERS, {"topics": producers})
        self._in_every_version(ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": []})
        self._in_every_version(ApiKey.DESCRIBE_TOPIC_PARTITIONS, {"topics": []})

    def _in_every_version(self, api_key: ApiKey, values: Any, version_min: int = 0) -> None:
        for version in range(max(version_min, APIS[api_key].version_min), APIS[api_key].version_max + 1):
            self._ask(api_key, version, values)


def _decoded(request: FuzzedRequest, frame: bytes) -> Any:
    view = memoryview(frame)
    api_key, version = request.api_key, request.version
    body = view[parse_response_header(api_key, version, view).body_position :]
    schema = response_schema(api_key, version)
    try:
        answer, position = message_reader(schema)(body, 0)
    except (MalformedResponse, ValueError, IndexError, struct.error) as problem:
        raise AssertionError(f"the answer to {_told(request)} cannot be read: {problem}") from problem
    assert position == len(body), f"{len(body) - position} bytes behind the answer to {_told(request)}"
    return answer


def _told(request: FuzzedRequest) -> str:
    return f"{APIS[request.api_key].name} {request.version}, {len(request.frame)} bytes: {request.frame[:300].hex()}"
