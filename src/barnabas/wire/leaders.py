"""The current leader of a partition, sent with the error to a client that asked the wrong broker (KIP-951).

A partition's reply carries the leader and its epoch, the whole reply the addresses of the leaders that it names, all as
tagged fields: in Produce from version 10, in Fetch from 12 (leader) and 16 (addresses).
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from barnabas.base.buffers import Buffer
from barnabas.wire.primitives import (
    INT32,
    NO_TAGGED_FIELDS,
    array_count,
    nullable_string,
    read_count,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
)

_LEADER: Final = Struct(">iiB")


class LeaderAndEpoch(NamedTuple):
    leader_id: int = -1
    leader_epoch: int = -1


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


NO_LEADER: Final = LeaderAndEpoch()
"""No leader is sent; it takes no bytes in a reply."""


def encode_leader(leader: LeaderAndEpoch) -> bytes:
    return _LEADER.pack(*leader, 0)


def decode_leader(value: Buffer) -> LeaderAndEpoch:
    leader_id, leader_epoch, _ = _LEADER.unpack_from(value)
    return LeaderAndEpoch(leader_id, leader_epoch)


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    encoded = [array_count(len(endpoints), is_compact=True)]
    for endpoint in endpoints:
        encoded += (
            INT32.pack(endpoint.node_id),
            nullable_string(endpoint.host, is_compact=True),
            INT32.pack(endpoint.port),
            nullable_string(endpoint.rack, is_compact=True),
            NO_TAGGED_FIELDS,
        )
    return b"".join(encoded)


def decode_endpoints(value: Buffer) -> tuple[NodeEndpoint, ...]:
    count, position = read_count(value, 0, is_compact=True)
    endpoints = []
    for _ in range(count):
        (node_id,) = INT32.unpack_from(value, position)
        host, position = read_string(value, position + 4, is_compact=True)
        (port,) = INT32.unpack_from(value, position)
        rack, position = read_nullable_string(value, position + 4, is_compact=True)
        position = skip_tagged_fields(value, position)
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    return tuple(endpoints)
