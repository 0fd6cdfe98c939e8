"""Which error codes an answer carries, found in the values that it is written from (`barnabas.wire.values`).

Only what can hold a code is looked at, by kio's schema of the answer's version. An answer may be long, so the search
pauses after some thousand messages: it is a generator that returns its result at the end.
"""

import barnabas.wire.kio_without_hypothesis  # noqa: F401 # before kio

# isort: split
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Final, NamedTuple

from kio.serial._introspect import EntityTupleField, classify_field

from barnabas.wire.messages import response_schema
from barnabas.wire.values import Values

_LOOKED_AT_TOGETHER: Final = 4096
_ANSWER: Final = "answer"


class _Place(NamedTuple):
    """Where messages with an error code stand."""

    path: tuple[str, ...]
    """Of the arrays that lead to the one that holds them."""
    array: str
    code: str


def answer_errors(api_key: int, version: int, values: Values) -> Generator[None, None, Counter[int]]:
    """How often each error code but NONE is in an answer."""
    counts: Counter[int] = Counter()
    looked_at = 0
    for path, array, code_name in _places(response_schema(api_key, version)):
        for parent in _along(path, {_ANSWER: [values]}):
            messages: Sequence[Values] = parent.get(array) or ()
            for start in range(0, len(messages), _LOOKED_AT_TOGETHER):
                together = messages[start : start + _LOOKED_AT_TOGETHER]
                if codes := [code for message in together if (code := message.get(code_name))]:
                    counts.update(codes)
                looked_at += 1 + len(together)
                if looked_at >= _LOOKED_AT_TOGETHER:
                    looked_at = 0
                    yield
    return counts


def _along(path: tuple[str, ...], values: Values) -> Iterator[Values]:
    """Every message at the end of a path of arrays."""
    if not path:
        yield values
        return
    for message in values.get(path[0]) or ():
        yield from _along(path[1:], message)


@cache
def _places(schema: Any) -> list[_Place]:
    return list(_places_in(schema, (), _ANSWER))


def _places_in(schema: Any, path: tuple[str, ...], array: str) -> Iterator[_Place]:
    for field in fields(schema):
        if field.metadata.get("kafka_type") == "error_code":
            yield _Place(path, array, field.name)
        match classify_field(field):
            case EntityTupleField(nested):
                yield from _places_in(nested, (*path, array), field.name)
