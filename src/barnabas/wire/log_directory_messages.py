"""DescribeLogDirs with what Kafka does not tell: the logs that a broker keeps but does not serve.

Every flexible version of the response (2 and later) has two tagged fields of ours in each log directory. Clients of
Kafka skip tags that they do not know; without stray logs nothing is sent.

| tag | field | |
|---|---|---|
| 10000 | `stray_count` | how many directories are set aside as `-stray` |
| 10001 | `strays` | the names of the first of them |
"""

import barnabas.wire.kio_without_hypothesis  # noqa: F401 # before kio

# isort: split
from dataclasses import field, fields, make_dataclass
from types import GenericAlias
from typing import Any, Final, get_args

from kio.static.primitive import i32

STRAYS_NAMED_MAX: Final = 100
_COUNT_TAG: Final = 10_000
_NAMES_TAG: Final = 10_001


def with_strays(response: Any) -> Any:
    """kio's class for one version of the response, with our fields where the version has room for them."""
    if not response.__flexible__:
        return response
    [results] = [one for one in fields(response) if one.name == "results"]
    result = get_args(results.type)[0]
    extended: Any = _extended(
        result,
        ("stray_count", i32, field(default=i32(0), metadata={"kafka_type": "int32", "tag": _COUNT_TAG})),
        ("strays", tuple[str, ...], field(default=(), metadata={"kafka_type": "string", "tag": _NAMES_TAG})),
    )
    return _extended(response, ("results", GenericAlias(tuple, (extended, ...)), field()))


def _extended(schema: Any, *members: tuple[str, Any, Any]) -> Any:
    """The class of the same name with further fields; a field that it has already keeps its place."""
    return make_dataclass(schema.__name__, members, bases=(schema,), frozen=True, slots=True, kw_only=True)
