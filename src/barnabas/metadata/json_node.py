"""JSON in nodes: read with suspicion, written as Kafka writes it. Pure.

What is not there or is of another type raises `CorruptNode` with the path of the node. Unknown fields are skipped: a
newer version may add some.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.metadata.errors import CorruptNode


def encode_json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_json(path: str, data: bytes) -> "JsonObject":
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise CorruptNode(path, f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CorruptNode(path, "not a JSON object")
    return JsonObject(path, value)


@dataclass(frozen=True, slots=True)
class JsonObject:
    """The fields of an object, by their type."""

    path: str
    fields: dict[str, Any]

    def number(self, name: str) -> int:
        return self._number(name, self.fields.get(name))

    def text(self, name: str) -> str:
        return self._text(name, self.fields.get(name))

    def optional_text(self, name: str) -> str | None:
        value = self.fields.get(name)
        return None if value is None else self._text(name, value)

    def number_in_text(self, name: str) -> int:
        """Kafka writes 64-bit numbers as texts."""
        text = self.text(name)
        try:
            return int(text)
        except ValueError:
            raise CorruptNode(self.path, f"{name} is not a number: {text[:80]!r}") from None

    def numbers(self, name: str) -> tuple[int, ...]:
        return tuple([self._number(name, value) for value in self._list(name)])

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple([self._text(name, value) for value in self._list(name)])

    def object(self, name: str) -> "JsonObject":
        value = self.fields.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "an object")
        return JsonObject(self.path, value)

    def optional_object(self, name: str) -> "JsonObject":
        """An empty one when it is not there."""
        return JsonObject(self.path, {}) if self.fields.get(name) is None else self.object(name)

    def objects(self, name: str) -> list["JsonObject"]:
        items = self._list(name)
        if not all(isinstance(item, dict) for item in items):
            raise self._wrong(name, "a list of objects")
        return [JsonObject(self.path, item) for item in items]

    def _list(self, name: str) -> list[Any]:
        value = self.fields.get(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def _number(self, name: str, value: Any) -> int:
        if type(value) is not int:  # a boolean is an `int`, too
            raise self._wrong(name, "a number")
        return value

    def _text(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value

    def _wrong(self, name: str, wanted: str) -> CorruptNode:
        return CorruptNode(self.path, f"{name} is not {wanted}: {self.fields.get(name, 'missing')!r:.80}")
