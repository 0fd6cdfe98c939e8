"""Configs, quotas and credentials: the nodes below `/config`, their paths, and their bytes. Pure.

```
/config/topics/T                     configs of a topic
/config/brokers/N                    configs of a broker
/config/users/U                      quotas and SCRAM credentials of a user
/config/users/U/clients/C            quotas of a client id of a user
/config/clients/C                    quotas of a client id, for every user
/config/ips/A                        quota of an IP address
```

All have the same JSON, `{"version": 1, "config": {name: text}}`; a node without data, as the parent of another is at
first, has no configs. `<default>` in place of N, U, C or A stands for everyone without a node of their own. Users,
client ids and addresses are percent-encoded (`sanitize`), so a user may well be named `<default>`.

A quota's text is what Java prints: `1048576` for rates that are whole numbers, `12.5` or `2.0E7` for the others.

Who changes one config writes the others back as they were: a user's quotas and credentials share a node.
"""

import base64
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, TypeAlias
from urllib.parse import quote, unquote

from barnabas.metadata.errors import CorruptNode
from barnabas.metadata.json_node import decode_json, encode_json

CONFIG_TOPICS: Final = "/config/topics"
CONFIG_BROKERS: Final = "/config/brokers"
CONFIG_CLIENTS: Final = "/config/clients"
CONFIG_USERS: Final = "/config/users"
CONFIG_IPS: Final = "/config/ips"
DEFAULT_ENTITY: Final = "<default>"

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""The configs of a user that hold a `ScramCredential`."""

_WHOLE_QUOTAS: Final = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
_FRACTIONAL_QUOTAS: Final = frozenset({"request_percentage", "controller_mutation_rate"})
QUOTA_NAMES: Final = _WHOLE_QUOTAS | _FRACTIONAL_QUOTAS


def topic_config_path(topic: str) -> str:
    return f"{CONFIG_TOPICS}/{topic}"


def broker_config_path(broker_id: int | None) -> str:
    """None is the default for all brokers."""
    return f"{CONFIG_BROKERS}/{DEFAULT_ENTITY if broker_id is None else broker_id}"


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return encode_json({"version": 1, "config": dict(configs)})


def decode_configs(path: str, data: bytes) -> dict[str, str]:
    if not data:
        return {}
    configs = decode_json(path, data).optional_object("config")
    return {name: configs.text(name) for name in configs.fields}


def sanitize(name: str) -> str:
    """A user, client id or address as a part of a path."""
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    return unquote(name)


class DefaultEntity(enum.Enum):
    """Stands in place of a name for everyone who has no node of their own."""

    DEFAULT = DEFAULT_ENTITY


DEFAULT: Final = DefaultEntity.DEFAULT
EntityName: TypeAlias = str | DefaultEntity


@dataclass(frozen=True, slots=True)
class ClientEntity:
    """Whose quotas and credentials a node has: a user, a client id, a client id of a user, or an IP address."""

    user: EntityName | None = None
    client_id: EntityName | None = None
    ip: EntityName | None = None

    @property
    def path(self) -> str:
        if self.ip is not None:
            assert self.user is None, "an address is nobody's in particular"
            assert self.client_id is None, "an address is nobody's in particular"
            return f"{CONFIG_IPS}/{_part(self.ip)}"
        if self.user is None:
            assert self.client_id is not None, "nobody in particular has no node"
            return f"{CONFIG_CLIENTS}/{_part(self.client_id)}"
        user_path = f"{CONFIG_USERS}/{_part(self.user)}"
        return user_path if self.client_id is None else f"{user_path}/clients/{_part(self.client_id)}"

    @classmethod
    def of_path(cls, path: str) -> "ClientEntity":
        match path.split("/"):
            case ["", "config", "ips", ip]:
                return cls(ip=_name(ip))
            case ["", "config", "clients", client_id]:
                return cls(client_id=_name(client_id))
            case ["", "config", "users", user]:
                return cls(user=_name(user))
            case ["", "config", "users", user, "clients", client_id]:
                return cls(user=_name(user), client_id=_name(client_id))
        raise CorruptNode(path, "not the path of a user, a client id or an IP address")


def _part(name: EntityName) -> str:
    return DEFAULT_ENTITY if isinstance(name, DefaultEntity) else sanitize(name)


def _name(part: str) -> EntityName:
    return DEFAULT if part == DEFAULT_ENTITY else desanitize(part)


def encode_quota(name: str, value: float) -> str:
    """The text of a quota, one of `QUOTA_NAMES`, as Kafka writes it."""
    assert name in QUOTA_NAMES, f"{name} is not a quota"
    return str(round(value)) if name in _WHOLE_QUOTAS else _java_double(value)


def decode_quotas(path: str, configs: Mapping[str, str]) -> dict[str, float]:
    """The quotas among the configs of a node."""
    try:
        return {name: float(text) for name, text in configs.items() if name in QUOTA_NAMES}
    except ValueError as error:
        raise CorruptNode(path, f"a quota is not a number: {error}") from None


def _java_double(value: float) -> str:
    """What Java's `Double.toString` says: plain from 0.001 up to ten million, else with an exponent."""
    number = Decimal(repr(value)).normalize()
    if not number or 1e-3 <= abs(value) < 1e7:
        text = format(number, "f")
        return text if "." in text else f"{text}.0"
    exponent = number.adjusted()
    mantissa = format(number.scaleb(-exponent), "f")
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}E{exponent}"


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What proves a password without knowing it, in one text: `salt=…,stored_key=…,server_key=…,iterations=N`."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def encode(self) -> str:
        keys = {"salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key}
        texts = [f"{name}={base64.b64encode(key).decode()}" for name, key in keys.items()]
        return ",".join([*texts, f"iterations={self.iterations}"])

    @classmethod
    def decode(cls, path: str, text: str) -> "ScramCredential":
        """The parts may come in any order. What cannot be read is not repeated in the error: it may be a secret."""
        parts = {name: value for name, _, value in [part.partition("=") for part in text.split(",")]}
        try:
            salt, stored_key, server_key = [
                base64.b64decode(parts.pop(name), validate=True) for name in ("salt", "stored_key", "server_key")
            ]
            iterations = int(parts.pop("iterations"))
        except (KeyError, ValueError):
            raise CorruptNode(path, "a SCRAM credential cannot be read") from None
        if parts:
            raise CorruptNode(path, "a SCRAM credential has too many parts")
        return cls(salt, stored_key, server_key, iterations)
