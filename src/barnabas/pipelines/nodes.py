"""Reads a YAML text by the tables of `barnabas.pipelines.definitions`; every mistake keeps the line it is on.

A mapping becomes an `Entry`: values already in their Python form, and the line of each key. Texts are taken as they
are written (`yes` stays a text where a text is wanted), so YAML's guesses about types never change what was meant.
Mistakes are collected, not raised one at a time: a user who fixes a file wants to see all of them.

| kind | Python value |
|---|---|
| TEXT, NAME, CHOICE | `str` |
| INTEGER | `int` |
| BOOLEAN | `bool` |
| DURATION | `int`, milliseconds |
| SIZE | `int`, bytes |
| TEXTS | `tuple[str, ...]` |
| SETTINGS | `dict[str, str]` |
| SECTIONS | `dict[str, Entry]` |

Pure: no I/O.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from barnabas.pipelines.definitions import Field, Kind, Section

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_VIEW_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)")
_DURATION_MS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_SIZE_BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_BOOLEANS: Final = {"true": True, "false": False, "yes": True, "no": False}


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One thing that is wrong, and the line (from 1) where it stands."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The keys of one mapping. `texts` marks where the lines of a text begin, for mistakes within it."""

    name: str
    line: int
    values: dict[str, Any]
    lines: dict[str, int]
    text_lines: dict[str, int] = field(default_factory=dict)

    def line_of(self, key: str) -> int:
        return self.lines.get(key, self.line)


class Reader:
    """Reads one document; `mistakes` has what is wrong with it."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def read(self, text: str, section: Section) -> Entry | None:
        """The document, or None when it is no mapping at all."""
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._complain(1 if mark is None else mark.line + 1, f"this is not YAML: {error.problem or error.context}")
            return None
        except yaml.YAMLError as error:
            self._complain(1, f"this is not YAML: {error}")
            return None
        if node is None:
            self._complain(1, f"the file is empty; a {section.noun} needs {_listed(_required(section))}")
            return None
        return self._entry(node, section, section.noun, "")

    def _complain(self, line: int, message: str) -> None:
        self.mistakes.append(Mistake(line, message))

    def _pairs(self, node: yaml.Node, what: str) -> list[tuple[str, int, yaml.Node]]:
        """The keys of a mapping with their lines; a key that comes twice is a mistake."""
        if not isinstance(node, yaml.MappingNode):
            self._complain(_line(node), f"{what} must be keys with values, as `key: value`")
            return []
        pairs: dict[str, tuple[str, int, yaml.Node]] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._complain(_line(key_node), f"a key of {what} must be a text")
            elif key_node.value in pairs:
                self._complain(_line(key_node), f"{what} has '{key_node.value}' twice")
            else:
                pairs[key_node.value] = (key_node.value, _line(key_node), value_node)
        return list(pairs.values())

    def _entry(self, node: yaml.Node, section: Section, what: str, name: str, line: int | None = None) -> Entry:
        entry = Entry(name, _line(node) if line is None else line, {}, {})
        known = [field.name for field in section.fields]
        for key, key_line, value_node in self._pairs(node, what):
            field = section.field(key)
            if field is None:
                self._complain(key_line, f"{what} has no key '{key}'{nearest(key, known)}")
                continue
            entry.lines[key] = key_line
            value = self._value(value_node, field, what)
            if value is not None:
                entry.values[key] = value
            if isinstance(value_node, yaml.ScalarNode):
                # The text of a block (`|`) begins on the line after its mark.
                entry.text_lines[key] = _line(value_node) + (1 if value_node.style in ("|", ">") else 0)
        self._check_presence(entry, section, what)
        return entry

    def _check_presence(self, entry: Entry, section: Section, what: str) -> None:
        for name in _required(section):
            if name not in entry.lines:
                self._complain(entry.line, f"{what} needs the key '{name}'")
        for group in section.one_of:
            given = [name for name in group if name in entry.lines]
            if not given:
                self._complain(entry.line, f"{what} needs one of {_listed(group)}")
            for name in given[1:]:
                self._complain(entry.lines[name], f"{what} has both '{given[0]}' and '{name}'; give only one")

    def _value(self, node: yaml.Node, field: Field, what: str) -> Any:
        match field.kind:
            case Kind.SECTIONS:
                assert field.section is not None, "a key with entries knows their section"
                return self._sections(node, field.section, field.name)
            case Kind.SETTINGS:
                return self._settings(node, f"'{field.name}' of {what}")
            case Kind.TEXTS:
                return self._texts(node, field, what)
        if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
            self._complain(_line(node), f"'{field.name}' of {what} must be {field.kind.value}")
            return None
        return self._scalar(node, field, what)

    def _scalar(self, node: yaml.ScalarNode, field: Field, what: str) -> Any:
        if field.kind is Kind.CHOICE or (field.kind is Kind.TEXTS and field.choices):
            if node.value not in field.choices:
                hint = nearest(node.value, field.choices) or f"; it must be one of {_listed(field.choices)}"
                self._complain(_line(node), f"'{field.name}' of {what} cannot be '{node.value}'{hint}")
                return None
            return node.value
        try:
            return read_scalar(node.value, field.kind)
        except ValueError:
            self._complain(_line(node), f"'{field.name}' of {what} must be {field.kind.value}, not '{node.value}'")
            return None

    def _sections(self, node: yaml.Node, section: Section, key: str) -> dict[str, Entry]:
        entries = {}
        for name, line, value_node in self._pairs(node, f"'{key}'"):
            pattern = _NAME if section.noun == "sink" else _VIEW_NAME
            if not pattern.fullmatch(name):
                self._complain(line, f"'{name}' cannot be the name of a {section.noun}: use letters, digits and `_`")
            entries[name] = self._entry(value_node, section, f"{section.noun} '{name}'", name, line)
        return entries

    def _settings(self, node: yaml.Node, what: str) -> dict[str, str]:
        settings = {}
        for name, _, value_node in self._pairs(node, what):
            if isinstance(value_node, yaml.ScalarNode):
                settings[name] = value_node.value
            else:
                self._complain(_line(value_node), f"'{name}' in {what} must be a single value")
        return settings

    def _texts(self, node: yaml.Node, field: Field, what: str) -> tuple[str, ...]:
        members = node.value if isinstance(node, yaml.SequenceNode) else [node]
        texts = []
        for member in members:
            if isinstance(member, yaml.ScalarNode):
                text = self._scalar(member, field, what)
                if text is not None:
                    texts.append(text)
            else:
                self._complain(_line(member), f"'{field.name}' of {what} must be {field.kind.value}")
        return tuple(texts)


def read_scalar(text: str, kind: Kind) -> Any:
    """A single value of this kind; ValueError when it is not one."""
    match kind:
        case Kind.INTEGER:
            if not text.isdecimal() or int(text) < 1:
                raise ValueError
            return int(text)
        case Kind.BOOLEAN:
            if text.lower() not in _BOOLEANS:
                raise ValueError
            return _BOOLEANS[text.lower()]
        case Kind.DURATION:
            return _measured(text, _DURATION, _DURATION_MS)
        case Kind.SIZE:
            return _measured(text, _SIZE, _SIZE_BYTES)
        case Kind.NAME:
            if not _NAME.fullmatch(text):
                raise ValueError
            return text
        case _:
            if not text.strip():
                raise ValueError
            return text


def _measured(text: str, pattern: re.Pattern[str], units: dict[str, int]) -> int:
    match = pattern.fullmatch(text.strip().lower())
    if match is None or match[2] not in units:
        raise ValueError
    return round(float(match[1]) * units[match[2]])


def nearest(name: str, names: Iterable[str]) -> str:
    """'; did you mean …?', or nothing when no name is near."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _required(section: Section) -> list[str]:
    return [field.name for field in section.fields if field.is_required]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
