"""The load of groups on a broker, from a process of its own: `python -m benchmarks.groups_load KIND --port N …`.

As `broker_load.py`: raw sockets, frames that are encoded beforehand where they are many, one line of JSON as a result.

    commit       OffsetCommit of one partition, `depth` in flight on each connection, a group without members for each
    fill         `commits` records in as few requests as a topic with `partitions` partitions allows, of `groups` groups
    stable       `groups` groups of `members` members each, a connection for each member, until all groups are stable
    heartbeats   the same, and then `seconds` of heartbeats, one for each member in every `interval_ms`; the processor
                 time is that of the heartbeats alone

A member does what a client does: it joins without an id, joins with the id it got, syncs (as the leader with the
assignment of everybody), sends heartbeats, and joins again when it is told that a rebalance goes on.
"""

import argparse
import heapq
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from barnabas.wire.apis import ApiKey
from barnabas.wire.framing import LENGTH_BYTES, parse_response_header, request_start
from barnabas.wire.messages import decode_response, write_request
from barnabas.wire.primitives import INT32
from benchmarks.broker_load import (
    BATCH_BYTES,
    CORRELATION_ID,
    Load,
    LoadFailed,
    Meter,
    Outcome,
    connect,
    one_by_one,
    pump,
    read_reply,
    report_outcome,
)

COMMIT_VERSION: Final = 9
"""The last one that names topics, so that the frames do not depend on what a broker drew for their ids."""
JOIN_VERSION: Final = 9
SYNC_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
TOPIC: Final = "grouped"

_CLIENT_ID: Final = "benchmark"
_SESSION_TIMEOUT_MS: Final = 45_000
_METADATA: Final = struct.pack(">hih", 0, 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", -1)
_ASSIGNMENT: Final = struct.pack(">hih", 0, 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">iii", 1, 0, -1)
_STALLED_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 0.02
_HEARTBEAT_ERROR: Final = struct.Struct(">h")
_HEARTBEAT_ERROR_AT: Final = 9
"""After the correlation id, no tagged fields and the throttle time."""

_UNKNOWN_MEMBER_ID, _ILLEGAL_GENERATION, _REBALANCE_IN_PROGRESS, _MEMBER_ID_REQUIRED = 25, 22, 27, 79
_NOT_YET: Final = (14, 15, 16)


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """What is asked for, by the command line."""

    kind: str
    port: int
    pid: int
    connections: int
    depth: int
    partitions: int
    commits: int
    groups: int
    members: int
    interval_ms: int
    seconds: float
    prefix: str
    on_command: bool


def frame(api_key: ApiKey, version: int, values: dict[str, Any]) -> bytes:
    body = write_request(api_key, version, values)
    return request_start(api_key, version, CORRELATION_ID, _CLIENT_ID, len(body)) + body


def ask(connection: socket.socket, api_key: ApiKey, version: int, values: dict[str, Any]) -> Any:
    connection.sendall(frame(api_key, version, values))
    return _decoded(api_key, version, read_reply(connection))


def _decoded(api_key: ApiKey, version: int, reply: memoryview) -> Any:
    header = parse_response_header(api_key, version, reply)
    return decode_response(api_key, version, reply[header.body_position :])


# --- commits ----------------------------------------------------------------------------------------------


def commit_values(group: str, offset: int, partitions: int = 1) -> dict[str, Any]:
    committed = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": ""} for index in range(partitions)
    ]
    return {
        "group_id": group,
        "member_id": "",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": TOPIC, "partitions": committed}],
    }


def check_commit(connection: socket.socket, values: dict[str, Any]) -> None:
    """Commits, and waits for a coordinator that is not there yet."""
    deadline = time.monotonic() + _STALLED_SECONDS
    while True:
        answer = ask(connection, ApiKey.OFFSET_COMMIT, COMMIT_VERSION, values)
        errors = {int(one.error_code) for topic in answer.topics for one in topic.partitions}
        if errors == {0}:
            return
        if not errors <= {*_NOT_YET, 3} or time.monotonic() > deadline:
            raise LoadFailed(f"a commit was refused with errors {errors}")
        ask(connection, ApiKey.FIND_COORDINATOR, 3, {"key": values["group_id"], "key_type": 0})
        time.sleep(_RETRY_SECONDS)


def commit(load: GroupLoad) -> Outcome:
    connections = [connect(load.port) for _ in range(load.connections)]
    every = [commit_values(f"{load.prefix}-{index}", 42) for index in range(load.connections)]
    for connection, values in zip(connections, every, strict=True):
        check_commit(connection, values)
    frames = [frame(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, values) for values in every]
    connections[0].sendall(frames[0])
    good = read_reply(connections[0])
    reply, reply_bytes = INT32.pack(len(good)) + bytes(good), LENGTH_BYTES + len(good)
    sizes = Load(
        kind="commit",
        port=load.port,
        pid=load.pid,
        topic=TOPIC,
        partitions=1,
        connections=load.connections,
        depth=load.depth,
        batch_bytes=BATCH_BYTES,
        seconds=load.seconds,
        megabytes=1e9,
    )
    if load.connections == load.depth == 1:
        outcome = one_by_one(sizes, connections[0], frames[0], reply_bytes, len(frames[0]), reply)
    else:
        outcome = pump(sizes, connections, frames, reply_bytes, len(frames[0]), reply)
    return outcome


def filled_group(prefix: str, number: int) -> str:
    return f"{prefix}-{number}"


def fill(load: GroupLoad) -> Outcome:
    """Each group in turn; with as many groups as requests every commit has a key of its own."""
    connection = connect(load.port)
    meter = Meter(load.pid)
    requests = load.commits // load.partitions
    for number in range(requests):
        group = filled_group(load.prefix, number % load.groups)
        check_commit(connection, commit_values(group, number + 1, load.partitions))
    return meter.outcome(requests, load.commits)


# --- members ----------------------------------------------------------------------------------------------


class GroupProgress:
    """Which members of a group are in which generation."""

    __slots__ = ("group_id", "size", "synced")

    def __init__(self, group_id: str, size: int) -> None:
        self.group_id = group_id
        self.size = size
        self.synced: dict[int, set[str]] = {}

    @property
    def is_stable(self) -> bool:
        return any(len(members) == self.size for members in self.synced.values())


class MemberLoad:
    """One member and its connection. One request is in flight at a time."""

    __slots__ = ("asked", "connection", "generation", "group", "heartbeat", "member_id", "received")

    def __init__(self, connection: socket.socket, group: GroupProgress) -> None:
        self.connection = connection
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.asked: ApiKey | None = None
        self.heartbeat = b""
        self.received = bytearray()

    def join(self) -> None:
        self.heartbeat = b""
        values = {
            "group_id": self.group.group_id,
            "session_timeout_ms": _SESSION_TIMEOUT_MS,
            "rebalance_timeout_ms": _SESSION_TIMEOUT_MS,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": _METADATA}],
        }
        self._send(ApiKey.JOIN_GROUP, frame(ApiKey.JOIN_GROUP, JOIN_VERSION, values))

    def beat(self) -> None:
        self._send(ApiKey.HEARTBEAT, self.heartbeat)

    def _send(self, api_key: ApiKey, data: bytes) -> None:
        self.asked = api_key
        self.connection.sendall(data)

    def replies(self) -> Iterator[memoryview]:
        """What has come whole."""
        data = self.connection.recv(1 << 16)
        if not data:
            raise LoadFailed("the broker closed a member's connection")
        self.received += data
        while len(self.received) >= LENGTH_BYTES:
            length = LENGTH_BYTES + INT32.unpack_from(self.received)[0]
            if len(self.received) < length:
                return
            reply = memoryview(bytes(self.received[LENGTH_BYTES:length]))
            del self.received[:length]
            yield reply

    def joined(self, answer: Any) -> bool:
        """Whether it goes on at once; if not, it tries again in a moment."""
        match int(answer.error_code):
            case 0:
                self.generation = answer.generation_id
                is_leader = answer.leader == self.member_id
                members = [{"member_id": one.member_id, "assignment": _ASSIGNMENT} for one in answer.members]
                values = {
                    **self._identity(),
                    "protocol_type": "consumer",
                    "protocol_name": "range",
                    "assignments": members if is_leader else [],
                }
                self._send(ApiKey.SYNC_GROUP, frame(ApiKey.SYNC_GROUP, SYNC_VERSION, values))
            case code if code == _MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
                self.join()
            case code if code == _UNKNOWN_MEMBER_ID:
                self.member_id = ""
                self.join()
            case code if code in (*_NOT_YET, _REBALANCE_IN_PROGRESS):
                return False
            case code:
                raise LoadFailed(f"a join was refused with error {code}")
        return True

    def synced(self, error: int) -> bool:
        """Whether it is in a generation now; if not, it joins again."""
        if error in (_REBALANCE_IN_PROGRESS, _ILLEGAL_GENERATION, *_NOT_YET):
            return False
        if error == _UNKNOWN_MEMBER_ID:
            self.member_id = ""
            return False
        if error:
            raise LoadFailed(f"a sync was refused with error {error}")
        self.heartbeat = frame(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, self._identity())
        self.group.synced.setdefault(self.generation, set()).add(self.member_id)
        return True

    def _identity(self) -> dict[str, Any]:
        return {"group_id": self.group.group_id, "generation_id": self.generation, "member_id": self.member_id}


class Crowd:
    """All members, on one epoll, with their timers."""

    def __init__(self, load: GroupLoad) -> None:
        self._interval = load.interval_ms / 1000
        self.groups = [GroupProgress(f"{load.prefix}-{number}", load.members) for number in range(load.groups)]
        self._members: dict[int, MemberLoad] = {}
        self._poll = select.epoll()
        self._due: list[tuple[float, int]] = []
        self._random = Random(7)
        self.unstable = set(self.groups)
        self.beats = 0
        for _ in range(load.members):
            for group in self.groups:
                connection = connect(load.port)
                self._members[connection.fileno()] = MemberLoad(connection, group)
                self._poll.register(connection.fileno(), select.EPOLLIN)

    def begin(self) -> None:
        for member in self._members.values():
            member.join()

    def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                member = self._members[heapq.heappop(self._due)[1]]
                member.beat() if member.heartbeat else member.join()
            wait = min(_STALLED_SECONDS, max(self._due[0][0] - now, 0) if self._due else _STALLED_SECONDS)
            events = self._poll.poll(min(wait, 0.1), 512)
            for descriptor, _ in events:
                member = self._members[descriptor]
                for reply in member.replies():
                    self._answered(descriptor, member, reply)

    def _answered(self, descriptor: int, member: MemberLoad, reply: memoryview) -> None:
        asked = member.asked
        if asked is ApiKey.HEARTBEAT:
            (error,) = _HEARTBEAT_ERROR.unpack_from(reply, _HEARTBEAT_ERROR_AT)
            self.beats += 1
            if not error:
                self._later(descriptor, self._interval)
            elif error in (_REBALANCE_IN_PROGRESS, _ILLEGAL_GENERATION):
                member.join()
            else:
                raise LoadFailed(f"a heartbeat was answered with error {error}")
        elif asked is ApiKey.JOIN_GROUP:
            if not member.joined(_decoded(ApiKey.JOIN_GROUP, JOIN_VERSION, reply)):
                self._later(descriptor, _RETRY_SECONDS)
        elif member.synced(int(_decoded(ApiKey.SYNC_GROUP, SYNC_VERSION, reply).error_code)):
            if member.group.is_stable:
                self.unstable.discard(member.group)
            # The first one at any time of the interval, so that they do not come all at once for ever.
            self._later(descriptor, self._interval * self._random.random())
        else:
            member.join()

    def _later(self, descriptor: int, seconds: float) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, descriptor))


def _settle(load: GroupLoad) -> tuple[Crowd, Meter]:
    crowd = Crowd(load)
    values = {"key": load.prefix, "key_type": 0}
    while ask_first := int(ask(connect(load.port), ApiKey.FIND_COORDINATOR, 3, values).error_code):
        if ask_first not in _NOT_YET:
            raise LoadFailed(f"there is no coordinator: error {ask_first}")
        time.sleep(_RETRY_SECONDS)
    if load.on_command:
        print("ready", flush=True)
        sys.stdin.readline()
    meter = Meter(load.pid)
    deadline = time.monotonic() + _STALLED_SECONDS
    crowd.begin()
    crowd.run(lambda: not crowd.unstable or time.monotonic() > deadline)
    if crowd.unstable:
        raise LoadFailed(f"{len(crowd.unstable)} groups are not stable after {_STALLED_SECONDS} s")
    return crowd, meter


def stable(load: GroupLoad) -> Outcome:
    _, meter = _settle(load)
    return meter.outcome(load.groups * load.members, 0)


def heartbeats(load: GroupLoad) -> Outcome:
    crowd, _ = _settle(load)
    interval_seconds = load.interval_ms / 1000
    settled = time.monotonic() + interval_seconds
    crowd.run(lambda: time.monotonic() > settled)  # until everybody is in step
    crowd.beats = 0
    meter = Meter(load.pid)
    deadline = time.monotonic() + load.seconds
    crowd.run(lambda: time.monotonic() > deadline)
    return meter.outcome(crowd.beats, 0)


KINDS: Final[dict[str, Callable[[GroupLoad], Outcome]]] = {
    "commit": commit,
    "fill": fill,
    "stable": stable,
    "heartbeats": heartbeats,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.groups_load", description="Puts groups on a broker.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="of the broker")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--depth", type=int, default=1, help="commits in flight on each connection")
    parser.add_argument("--partitions", type=int, default=100, help="of the topic, for `fill`")
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--members", type=int, default=100, help="of each group")
    parser.add_argument("--interval-ms", type=int, default=3000, help="of heartbeats")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--prefix", default="bench", help="of the groups' names")
    parser.add_argument(
        "--on-command", action="store_true", help="say `ready` when connected, join after a line of input"
    )
    load = GroupLoad(**vars(parser.parse_args(arguments)))
    return report_outcome(load.kind, lambda: KINDS[load.kind](load))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
