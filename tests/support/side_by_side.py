"""The same requests to Barnabas and to Apache Kafka, and the answers compared field by field.

```python
pair.compare("a topic that does not exist", ApiKey.PRODUCE, version, lambda side: {"acks": 1, ...})
```

A request is made for each side, because ids differ. Both answers are decoded by the same decoder into plain values,
what cannot be equal (ids, ports, paths, the words of a message) gets the same name on both sides, arrays whose order
means nothing are sorted, and whatever still differs is kept in `pair.differences`, one entry for each field.

Kafka answers some requests from a view of the cluster that lags its own changes by a moment. So a request that changes
nothing (`is_read`) is asked again until both agree, for a second at most.
"""

import re
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, TypeAlias
from uuid import UUID

from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.framing import parse_response_header, request_start
from barnabas.wire.messages import decode_response, write_request
from tests.support.kafka import wait_until

Values: TypeAlias = Mapping[str, Any]

CLOSED = "the connection is closed"
NO_ANSWER = "no answer"
WORDS = "words"
CLIENT_ID = "side-by-side"
ANSWER_TIMEOUT_SECONDS = 180
AGREEMENT_TIMEOUT_SECONDS = 60.0
UNKNOWN_ID = UUID("11111111-2222-4333-8444-555555555555")

_LENGTH = struct.Struct(">i")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def versions(api_key: ApiKey) -> range:
    """All that are served."""
    return range(APIS[api_key].version_min, APIS[api_key].version_max + 1)


def read_exactly(connection: socket.socket, count: int) -> bytes | None:
    """None when the connection ends before."""
    received = bytearray()
    while len(received) < count:
        more = connection.recv(count - len(received))
        if not more:
            return None
        received += more
    return bytes(received)


# --- one side ---------------------------------------------------------------------------------------------


class Side:
    """A broker, the connection to it, and the ids that it gave."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self._address = (bootstrap.rpartition(":")[0], int(bootstrap.rpartition(":")[2]))
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self.topic_ids: dict[str, UUID] = {}
        self.producer_ids: dict[str, int] = {}
        self.member_ids: dict[str, str] = {}
        self.session_id = 0
        self._lines: dict[str, Side] = {}
        self._asked: tuple[ApiKey, int] | None = None

    def line(self, name: str) -> "Side":
        """Another connection to the same broker, sharing the ids: for a request that waits for one of another's."""
        if not name:
            return self
        if name not in self._lines:
            line = self._lines[name] = Side(self.name, f"{self._address[0]}:{self._address[1]}")
            line.topic_ids, line.producer_ids, line.member_ids = self.topic_ids, self.producer_ids, self.member_ids
        return self._lines[name]

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, frames: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=ANSWER_TIMEOUT_SECONDS)
        self._socket.sendall(frames)

    def receive(self) -> bytes | None:
        """The next frame; None when the broker has closed the connection."""
        assert self._socket is not None
        try:
            length = read_exactly(self._socket, _LENGTH.size)
            frame = None if length is None else read_exactly(self._socket, *_LENGTH.unpack(length))
        except ConnectionError:
            frame = None
        if frame is None:
            self.close()
        return frame

    def frame(self, api_key: ApiKey, version: int, values: Values | bytes, client_id: str = CLIENT_ID) -> bytes:
        body = values if isinstance(values, bytes) else write_request(api_key, version, values)
        self._correlation_id += 1
        return request_start(api_key, version, self._correlation_id, client_id, len(body)) + body

    def ask(self, api_key: ApiKey, version: int, values: Values | bytes, client_id: str = CLIENT_ID) -> Any:
        """The answer as plain values, or `CLOSED`, or `NO_ANSWER`."""
        self.begin(api_key, version, values, client_id)
        return self.finish()

    def begin(self, api_key: ApiKey, version: int, values: Values | bytes, client_id: str = CLIENT_ID) -> None:
        """Sends a request whose answer `finish` waits for."""
        self._asked = (api_key, version)
        self.send(self.frame(api_key, version, values, client_id))

    def finish(self) -> Any:
        assert self._asked is not None, "nothing was asked"
        (api_key, version), self._asked = self._asked, None
        try:
            answer = self.receive()
        except TimeoutError:
            self.close()
            return NO_ANSWER
        if answer is None:
            return CLOSED
        header = parse_response_header(api_key, version, memoryview(answer))
        assert header.correlation_id == self._correlation_id
        return plain(decode_response(api_key, version, memoryview(answer)[header.body_position :]))

    # -- what a story needs done, without comparing it ---------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Returns when it can be written to and read from."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        answer = self.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 10_000})
        assert answer["topics"][0]["error_code"] == 0, answer
        self.learn_topic(name)

    def learn_topic(self, name: str) -> None:
        """Waits until the topic is served, and keeps its id."""

        def is_served() -> bool:
            asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
            topic = self.ask(ApiKey.METADATA, 12, asked)["topics"][0]
            if topic["error_code"]:
                return False
            self.topic_ids[name] = topic["topic_id"]
            latest = [{"partition_index": one["partition_index"], "timestamp": -1} for one in topic["partitions"]]
            asked = {"replica_id": -1, "topics": [{"name": name, "partitions": latest}]}
            answer = self.ask(ApiKey.LIST_OFFSETS, 7, asked)["topics"][0]
            return all(one["error_code"] == 0 for one in answer["partitions"])

        wait_until(is_served, f"{self.name} serves {name}")

    def topic(self, name: str) -> dict[str, Any]:
        """By name and by id, as Produce, Fetch and their versions want it."""
        return {"name": name, "topic": name, "topic_id": self.topic_ids.get(name, UNKNOWN_ID)}

    def produce(self, topic: str, batch: bytes, partition: int = 0) -> None:
        partitions = [{"index": partition, "records": batch}]
        asked = {"acks": -1, "timeout_ms": 10_000, "topic_data": [{**self.topic(topic), "partition_data": partitions}]}
        answer = self.ask(ApiKey.PRODUCE, 12, asked)
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, answer


def plain(value: Any) -> Any:
    """A decoded message as mappings, lists and numbers, with kio's names."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(milliseconds=1)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


# --- both sides -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    api: str
    version: int
    case: str
    field: str
    ours: Any
    kafkas: Any

    def __str__(self) -> str:
        return f"{self.api} {self.version}, {self.case}: {self.field} is {self.ours!r}, Kafka's {self.kafkas!r}"


@dataclass(frozen=True)
class Intended:
    """A difference that is meant, where all three patterns match."""

    api: ApiKey
    reason: str
    case: str = "*"
    field: str = "*"

    def covers(self, difference: Difference) -> bool:
        return (
            difference.api == APIS[self.api].name
            and fnmatchcase(difference.case, self.case)
            and fnmatchcase(difference.field, self.field)
        )


class Pair:
    """Both brokers, and where they were not of one mind."""

    def __init__(self, ours: Side, kafkas: Side, intended: tuple[Intended, ...]) -> None:
        self.ours = ours
        self.kafkas = kafkas
        self.intended = intended
        self.differences: list[Difference] = []
        self.compared = 0

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.ours, self.kafkas

    def each(self, do: Callable[[Side], None]) -> None:
        for side in self.sides:
            do(side)

    def compare(
        self,
        case: str,
        api_key: ApiKey,
        version: int,
        request: Callable[[Side], Values | bytes],
        *,
        is_read: bool = False,
        client_id: str = CLIENT_ID,
        only: Callable[[Any], Any] = lambda answer: answer,
        line: str = "",
        learn: Callable[[Side, Any], None] = lambda side, answer: None,
    ) -> tuple[Any, Any]:
        """Asks both; `only` says which part of an answer is looked at. Returns both answers as they came.

        `learn` gets each answer before they are compared, to keep the ids in it.
        """
        deadline = time.monotonic() + (AGREEMENT_TIMEOUT_SECONDS if is_read else 0)
        while True:
            answers = tuple(side.line(line).ask(api_key, version, request(side), client_id) for side in self.sides)
            found = self._differences(case, api_key, version, answers, only, learn)
            if self.unexplained(found) == [] or time.monotonic() > deadline:
                self.compared += 1
                self.differences += found
                return answers[0], answers[1]
            time.sleep(0.02)

    def begin(self, line: str, api_key: ApiKey, version: int, request: Callable[[Side], Values | bytes]) -> None:
        """Asks both on a line of their own, and does not wait for the answers."""
        for side in self.sides:
            side.line(line).begin(api_key, version, request(side))

    def finish(
        self,
        case: str,
        line: str,
        api_key: ApiKey,
        version: int,
        learn: Callable[[Side, Any], None] = lambda side, answer: None,
    ) -> tuple[Any, Any]:
        """Compares the answers to what was begun on that line."""
        answers = tuple(side.line(line).finish() for side in self.sides)
        self.compared += 1
        self.differences += self._differences(case, api_key, version, answers, lambda answer: answer, learn)
        return answers[0], answers[1]

    def _differences(
        self,
        case: str,
        api_key: ApiKey,
        version: int,
        answers: tuple[Any, ...],
        only: Callable[[Any], Any],
        learn: Callable[[Side, Any], None],
    ) -> list[Difference]:
        for answer, side in zip(answers, self.sides, strict=True):
            if not isinstance(answer, str):
                learn(side, answer)
        seen = [
            named(answer if isinstance(answer, str) else only(answer), side)
            for answer, side in zip(answers, self.sides, strict=True)
        ]
        return [Difference(APIS[api_key].name, version, case, *one) for one in differences("", *seen)]

    def compare_raw(self, case: str, frame: bytes) -> tuple[Any, Any]:
        """The same bytes to both, and the same bytes back, or none."""
        answers = []
        for side in self.sides:
            side.send(frame)
            answers.append(side.receive() or CLOSED)
            side.close()
        self.compared += 1
        if answers[0] != answers[1]:
            self.differences.append(Difference("raw", 0, case, "frame", *answers))
        return answers[0], answers[1]

    def unexplained(self, found: list[Difference] | None = None) -> list[Difference]:
        found = self.differences if found is None else found
        return [one for one in found if not any(intended.covers(one) for intended in self.intended)]

    def unused(self, api_key: ApiKey) -> list[Intended]:
        """Intended differences that there are not: the list is to be kept short."""
        return [
            intended
            for intended in self.intended
            if intended.api == api_key and not any(intended.covers(one) for one in self.differences)
        ]


# --- comparing --------------------------------------------------------------------------------------------

_WORDS = frozenset({"error_message", "batch_index_error_message", "documentation"})
_PER_BROKER = frozenset({"port", "cluster_id", "log_dir", "total_bytes", "usable_bytes"})
_UNORDERED_BY = (
    *("name", "topic", "partition_index", "index", "api_key", "resource_type", "producer_id", "topic_id"),
    *("group_id", "member_id"),
)
_MEMBER_ID = re.compile(r"(.*)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL)


def named(value: Any, side: Side, field: str = "") -> Any:
    """The value with everything that no two brokers have in common under one name."""
    if isinstance(value, dict):
        return {name: named(member, side, name) for name, member in value.items()}
    if isinstance(value, list):
        members = [named(member, side, field) for member in value]
        if members and all(isinstance(member, dict) for member in members):
            members.sort(key=lambda member: [str(member.get(key)) for key in _UNORDERED_BY])
        return members
    if field in _WORDS and value:
        return WORDS
    if field in _PER_BROKER and value not in (None, -1):
        return f"its own {field}"
    if field == "session_id" and value:
        return "a session"
    if field == "log_append_time" and value is not None:
        return "its time"
    if field == "topic_id" and value is not None:
        return next((f"the id of {name}" for name, one in side.topic_ids.items() if one == value), str(value))
    if field == "producer_id" and value != -1:
        return next((f"the id of {name}" for name, one in side.producer_ids.items() if one == value), "a producer id")
    if field in ("member_id", "leader") and value:
        return _named_member(value, side)
    return bytes(value) if isinstance(value, memoryview) else value


def _named_member(member_id: str, side: Side) -> str:
    """What the broker drew gets a name, what the client chose stays."""
    known = next((f"the id of {name}" for name, one in side.member_ids.items() if one == member_id), None)
    drawn = _MEMBER_ID.fullmatch(member_id)
    return known or (f"{drawn[1]}-UUID" if drawn else member_id)


def differences(path: str, ours: Any, kafkas: Any) -> Iterator[tuple[str, Any, Any]]:
    """The fields that differ: path, ours, Kafka's."""
    if isinstance(ours, dict) and isinstance(kafkas, dict):
        for name in ours.keys() | kafkas.keys():
            yield from differences(f"{path}.{name}".lstrip("."), ours.get(name), kafkas.get(name))
    elif isinstance(ours, list) and isinstance(kafkas, list) and len(ours) == len(kafkas):
        for index, (our, kafkas_own) in enumerate(zip(ours, kafkas, strict=True)):
            name = our.get("name", index) if isinstance(our, dict) else index
            yield from differences(f"{path}({name})", our, kafkas_own)
    elif ours != kafkas and not (ours == WORDS and not kafkas):  # it is no fault to say why
        yield path, ours, kafkas
