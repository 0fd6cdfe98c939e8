"""The registration of a broker, `/brokers/ids/N`: what it means, and its bytes. Pure.

The node is ephemeral: it lives as long as the broker's session, and its czxid is the broker epoch. Kafka's fields are
those of Kafka 3.9. Ours are in two places that Kafka's own decoder accepts:

```
"features": {"barnabas": {"min_version": 0, "max_version": 1}}      a broker of Barnabas, and what it understands
"barnabas": {"previous_epoch": "21", "intact_since": "15", "directory_ids": ["…"]}
```

Each is written only if it says something, and may be missing: Kafka's brokers write neither. Broker epochs have 64 bits
and are texts, like every such number in Kafka's nodes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from barnabas.base.addresses import address_text
from barnabas.base.uuid import parse_uuid, uuid_text
from barnabas.metadata.errors import CorruptNode
from barnabas.metadata.json_node import JsonObject, decode_json, encode_json
from barnabas.wire.apis import ALL_APIS, ApiKey

BROKER_IDS: Final = "/brokers/ids"

BARNABAS: Final = "barnabas"
"""Our feature in a registration, and the field of our additions in every node that has some."""

_ENDPOINT: Final = re.compile(r"(?P<listener>[^:/]+)://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:]*)):(?P<port>\d+)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that a broker advertises on one of its listeners."""

    listener: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{address_text(self.host, self.port)}"


@dataclass(frozen=True, slots=True)
class VersionRange:
    """What a broker supports of a feature. Kafka reads 16-bit numbers from 0 on."""

    min_version: int
    max_version: int

    def overlaps(self, other: "VersionRange") -> bool:
        return self.min_version <= other.max_version and other.min_version <= self.max_version


_IMAGES: Final = ALL_APIS[ApiKey.FETCH_IMAGE]
BARNABAS_VERSIONS: Final = VersionRange(_IMAGES.version_min, _IMAGES.version_max)
"""The versions of FetchImage that this code understands: brokers whose versions overlap can follow each other's image.
A change of our additions to the nodes that older brokers must not miss takes a new version, too."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """`/brokers/ids/N`, version 5."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    jmx_port: int = -1
    timestamp_ms: int = 0
    features: Mapping[str, VersionRange] = field(default_factory=dict)
    previous_epoch: int | None = None
    """The broker epoch of its registration before this one; None for a broker that knows of none."""
    intact_since: int | None = None
    """The oldest of its broker epochs since which its logs lost nothing, at most `previous_epoch`; None when the broker
    cannot prove that they are whole."""
    directory_ids: tuple[UUID, ...] = ()
    """The log directories that are online."""

    @staticmethod
    def path_of(broker_id: int) -> str:
        return f"{BROKER_IDS}/{broker_id}"

    @property
    def path(self) -> str:
        return self.path_of(self.broker_id)

    @property
    def is_barnabas(self) -> bool:
        return BARNABAS in self.features

    def encode(self) -> bytes:
        # Host and port on their own are for old clients, which know no listeners.
        plain = next((one for one in self.endpoints if one.security_protocol == "PLAINTEXT"), None)
        fields: dict[str, object] = {
            "version": 5,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "jmx_port": self.jmx_port,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [str(endpoint) for endpoint in self.endpoints],
            "listener_security_protocol_map": {one.listener: one.security_protocol for one in self.endpoints},
            "features": {
                name: {"min_version": versions.min_version, "max_version": versions.max_version}
                for name, versions in self.features.items()
            },
        }
        if self.rack is not None:
            fields["rack"] = self.rack
        if additions := self._additions():
            fields[BARNABAS] = additions
        return encode_json(fields)

    def _additions(self) -> dict[str, object]:
        additions: dict[str, object] = {}
        if self.previous_epoch is not None:
            additions["previous_epoch"] = str(self.previous_epoch)
        if self.intact_since is not None:
            assert self.previous_epoch is not None, "only a broker with a past can be intact since then"
            assert self.intact_since <= self.previous_epoch, "intact since an epoch that it never had"
            additions["intact_since"] = str(self.intact_since)
        if self.directory_ids:
            additions["directory_ids"] = [uuid_text(directory_id) for directory_id in self.directory_ids]
        return additions

    @classmethod
    def decode(cls, broker_id: int, data: bytes) -> "BrokerRegistration":
        """Versions 2 to 5; in 2 and 3 a listener's name is its security protocol."""
        path = cls.path_of(broker_id)
        fields = decode_json(path, data)
        if fields.number("version") < 2:
            raise CorruptNode(path, f"registration version {fields.number('version')} is too old")
        protocols = fields.optional_object("listener_security_protocol_map")
        features = fields.optional_object("features")
        additions = fields.optional_object(BARNABAS)
        previous_epoch = _decode_optional_epoch(additions, "previous_epoch")
        intact_since = _decode_optional_epoch(additions, "intact_since")
        if intact_since is not None and (previous_epoch is None or intact_since > previous_epoch):
            raise CorruptNode(path, f"intact since {intact_since}, although the previous epoch is {previous_epoch}")
        return cls(
            broker_id=broker_id,
            endpoints=tuple([_decode_endpoint(path, text, protocols) for text in fields.texts("endpoints")]),
            rack=fields.optional_text("rack"),
            jmx_port=fields.number("jmx_port"),
            timestamp_ms=fields.number_in_text("timestamp"),
            features={name: _decode_versions(features.object(name)) for name in features.fields},
            previous_epoch=previous_epoch,
            intact_since=intact_since,
            directory_ids=_decode_directory_ids(additions),
        )


def _decode_endpoint(path: str, text: str, protocols: JsonObject) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise CorruptNode(path, f"not an endpoint: {text[:80]!r}")
    listener = match["listener"]
    return Endpoint(
        listener=listener,
        security_protocol=protocols.optional_text(listener) or listener,
        host=match["host"] if match["v6"] is None else match["v6"],
        port=int(match["port"]),
    )


def _decode_versions(fields: JsonObject) -> VersionRange:
    return VersionRange(fields.number("min_version"), fields.number("max_version"))


def _decode_optional_epoch(additions: JsonObject, name: str) -> int | None:
    return additions.number_in_text(name) if name in additions.fields else None


def _decode_directory_ids(additions: JsonObject) -> tuple[UUID, ...]:
    if "directory_ids" not in additions.fields:
        return ()
    try:
        return tuple([parse_uuid(text) for text in additions.texts("directory_ids")])
    except ValueError as error:
        raise CorruptNode(additions.path, str(error)) from None
