"""The words that a sentence leaves open, by kind: which text may stand there, and what it means. Pure.

A kind turns a text into a value, or raises `Unfit` with what was expected. Names are a kind of their own: whether they
are known depends on the lines above, so `barnabas.sim.scenarios.language` looks at them.
"""

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, get_args

from barnabas.base.ids import TopicPartition
from barnabas.sim.faults import Operation

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "day": 86_400.0, "days": 86_400.0}
_ACKS: Final = {"all": -1, "1": 1, "0": 0}


class Unfit(Exception):  # noqa: N818 - named as the fact that it is
    """The text cannot stand there."""


@dataclass(frozen=True, slots=True)
class Item:
    """A record as a page writes it: `value`, `key=value`, or `key=` for a tombstone."""

    key: str | None
    value: str | None

    def __str__(self) -> str:
        return f"{self.value}" if self.key is None else f"{self.key}={self.value or ''}"


def _number(text: str) -> int:
    if not text.isdecimal():
        raise Unfit(f"'{text}' is not a number")
    return int(text)


def _duration(text: str) -> float:
    count, _, unit = text.partition(" ")
    try:
        return float(count) * _SECONDS[unit]
    except (ValueError, KeyError):
        raise Unfit(f"'{text}' is not a duration: write 200 ms, 5 s, 2 min, 1 h or 1 day") from None


def _item(text: str) -> Item:
    key, separator, value = text.partition("=")
    return Item(key, value or None) if separator else Item(None, text)


def _items(text: str) -> tuple[Item, ...]:
    return tuple(map(_item, text.split()))


def _partition(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    if not topic or not index.isdecimal():
        raise Unfit(f"'{text}' is not a partition: write a topic and a number, as in orders-0")
    return TopicPartition(topic, int(index))


def _partitions(text: str) -> tuple[TopicPartition, ...]:
    return () if text == "nothing" else tuple(map(_partition, text.split()))


def _brokers(text: str) -> tuple[int, ...]:
    """Their numbers."""
    names = [] if text == "nobody" else text.split()
    numbers = [name.removeprefix(f"{BROKER}-") for name in names]
    if not all(number.isdecimal() for number in numbers):
        raise Unfit(f"'{text}' are no brokers: write broker-1 broker-2, or nobody")
    return tuple(map(int, numbers))


def _settings(text: str) -> tuple[tuple[str, str], ...]:
    settings = []
    for one in text.split():
        name, separator, value = one.partition("=")
        if not separator:
            raise Unfit(f"'{one}' is not a setting: write name=value")
        settings.append((name, value))
    return tuple(settings)


def _acks(text: str) -> int:
    if text not in _ACKS:
        raise Unfit(f"'{text}' is not a number of acks: write all, 1 or 0")
    return _ACKS[text]


def _error_number(text: str) -> int:
    number = getattr(errno, text, None)
    if not isinstance(number, int):
        raise Unfit(f"'{text}' is not an error of a system call: write EIO, EROFS, …")
    return number


def _operation(text: str) -> str:
    known = get_args(Operation)
    if text not in known:
        raise Unfit(f"'{text}' is not a call to a disk: write one of {', '.join(known)}")
    return text


@dataclass(frozen=True, slots=True)
class Kind:
    read: Callable[[str], object]
    words: str
    """Which words it takes: one, two, or (as few as possible of) many."""


_ONE: Final = r"\S+"
_TWO: Final = r"\S+ \S+"
_MANY: Final = r"\S+(?: \S+)*?"

KINDS: Final[Mapping[str, Kind]] = {
    "number": Kind(_number, _ONE),
    "duration": Kind(_duration, _TWO),
    "word": Kind(str, _ONE),
    "text": Kind(str, _MANY),
    "values": Kind(_items, _MANY),
    "partition": Kind(_partition, _ONE),
    "partitions": Kind(_partitions, _MANY),
    "settings": Kind(_settings, _MANY),
    "brokers": Kind(_brokers, _MANY),
    "acks": Kind(_acks, _ONE),
    "errno": Kind(_error_number, _ONE),
    "operation": Kind(_operation, _ONE),
}

BROKER: Final = "broker"
CLUSTER: Final = "cluster"
ZOOKEEPER: Final = "zookeeper"
PRODUCER: Final = "producer"
READER: Final = "reader"
MEMBER: Final = "member"

NAMES: Final[Mapping[str, frozenset[str]]] = {
    BROKER: frozenset({BROKER}),
    PRODUCER: frozenset({PRODUCER}),
    READER: frozenset({READER, MEMBER}),
    MEMBER: frozenset({MEMBER}),
    "node": frozenset({BROKER, PRODUCER, READER, MEMBER}),
    "host": frozenset({BROKER, PRODUCER, READER, MEMBER, ZOOKEEPER}),
}
"""For each kind of name: what may bear it. `new-…` is a name that no line above has used."""
