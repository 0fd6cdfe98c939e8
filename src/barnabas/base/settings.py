"""The typed table of settings: what a setting is, how text becomes its value, what is said of a wrong one.

Each layer lists its settings as `Setting` rows in a `SettingTable` (`barnabas.storage.setting_tables` has the
log's); parsing, validation, help, the replies to DescribeConfigs and `docs/settings.md` are all derived from
the rows. A value is kept as text where people write it (files, ZooKeeper, the wire) and parsed once where it
is used:

| type | Python value |
|---|---|
| BOOLEAN | `bool` |
| INT, SHORT, LONG | `int`, within the type's width |
| DOUBLE | `float`, finite |
| STRING, CLASS, PASSWORD | `str` |
| LIST | `tuple[str, ...]`, comma-separated in the text, without repetitions |

A default of None means "not set": another setting, named in the row's text, decides. Pure: no I/O.
"""

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Protocol, TypeAlias

from barnabas.base.errors import InvalidSetting
from barnabas.base.texts import SHOWN_LENGTH_MAX, shortened

SettingValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None

TEXT_BYTES_MAX = 2**15 - 1
"""Of a value: the protocol cannot carry a longer one to clients."""
LONG_MAX = 2**63 - 1
DOUBLE_MAX = math.nextafter(math.inf, 0)

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE_NUMBER_DIGITS_MAX = 20


class SettingType(IntEnum):
    """By the numbers that DescribeConfigs uses for them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_WHOLE_NUMBER_BITS = {SettingType.SHORT: 16, SettingType.INT: 32, SettingType.LONG: 64}
_TYPE_TEXT = {
    SettingType.BOOLEAN: "true or false",
    SettingType.INT: "a whole number",
    SettingType.SHORT: "a whole number",
    SettingType.LONG: "a whole number",
    SettingType.DOUBLE: "a number",
    SettingType.LIST: "a comma-separated list",
}


class Dynamic(Enum):
    """Whether, and for whom, a setting can be changed while the broker runs."""

    NO = "no"
    PER_BROKER = "per broker"
    YES = "yes"


class Unit(Enum):
    """What a number counts, so that people are shown '7 days' beside 604800000."""

    NONE = 1
    MILLISECONDS = 2
    MINUTES = 60_000
    HOURS = 3_600_000
    BYTES = 3


class Validator(Protocol):
    """Decides which parsed values are allowed, and can say so."""

    def allows(self, value: SettingValue) -> bool: ...

    def describe(self, unit: Unit) -> str: ...


@dataclass(frozen=True, slots=True)
class Between:
    """A number in a range; `also` names single values outside it that are allowed too."""

    low: float | None = None
    high: float | None = None
    also: tuple[int, ...] = ()
    low_is_excluded: bool = False

    def allows(self, value: SettingValue) -> bool:
        assert isinstance(value, int | float), "only numbers have a range"
        if value in self.also:
            return True
        if self.low is not None and (value < self.low or (self.low_is_excluded and value == self.low)):
            return False
        return self.high is None or value <= self.high

    def within(self, type_max: int) -> "Between":
        """This range with the largest number of the type for an upper end, where it has none of its own."""
        return replace(self, high=type_max) if self.high is None else self

    def describe(self, unit: Unit) -> str:
        low = "" if self.low is None else with_unit(self.low, unit)
        high = "" if self.high is None else with_unit(self.high, unit)
        if self.low_is_excluded:
            text = f"more than {low}" + (f" and at most {high}" if high else "")
        elif low and high:
            text = f"from {low} to {high}"
        else:
            text = f"at least {low}" if low else f"at most {high}"
        return ", or ".join([text, *(str(single) for single in self.also)])


@dataclass(frozen=True, slots=True)
class NegativeOrAtLeast:
    """A limit that any negative number lifts, and that zero and the like would make senseless."""

    low: int = 1

    def allows(self, value: SettingValue) -> bool:
        assert isinstance(value, int | float), "only numbers have a range"
        return value < 0 or value >= self.low

    def describe(self, unit: Unit) -> str:
        return f"at least {with_unit(self.low, unit)}, or negative for no limit"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these words, in this spelling."""

    words: tuple[str, ...]

    def allows(self, value: SettingValue) -> bool:
        return value in self.words

    def describe(self, unit: Unit) -> str:
        return "one of " + ", ".join(filter(None, self.words)) + (" (may be empty)" if "" in self.words else "")


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list whose members match a pattern; `text` says in words what they are."""

    pattern: re.Pattern[str]
    text: str
    may_be_empty: bool = True

    def allows(self, value: SettingValue) -> bool:
        assert isinstance(value, tuple), "only lists have members"
        return (bool(value) or self.may_be_empty) and all(self.pattern.fullmatch(member) for member in value)

    def describe(self, unit: Unit) -> str:
        return self.text + (" (may be empty)" if self.may_be_empty else "")


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*` alone for all, or pairs of partition and broker."""

    _PAIR = re.compile(r"[0-9]+:[0-9]+")

    def allows(self, value: SettingValue) -> bool:
        assert isinstance(value, tuple), "only lists have members"
        return value == ("*",) or all(self._PAIR.fullmatch(member) for member in value)

    def describe(self, unit: Unit) -> str:
        return "`*`, or pairs PARTITION:BROKER (may be empty)"


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker-wide setting that gives a topic setting its default; one of its units is `factor` of the
    topic's."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    `synonyms` are asked in their order when the setting is not given. `unsupported` names the feature that
    Barnabas does not have: such a setting is known, and refused when given any value but its default. An
    `is_internal` one works and is left out of the docs.
    """

    name: str
    type: SettingType
    default: SettingValue
    doc: str
    group: str
    validator: Validator | None = None
    dynamic: Dynamic = Dynamic.YES
    synonyms: tuple[Synonym, ...] = ()
    unsupported: str = ""
    is_internal: bool = False

    @property
    def is_sensitive(self) -> bool:
        """Its value is never shown."""
        return self.type is SettingType.PASSWORD

    @property
    def unit(self) -> Unit:
        if self.type not in (*_WHOLE_NUMBER_BITS, SettingType.DOUBLE):
            return Unit.NONE
        if self.name.endswith((".bytes", ".buffer.size", ".bytes.per.second")):
            return Unit.BYTES
        by_ending = {"ms": Unit.MILLISECONDS, "minutes": Unit.MINUTES, "hours": Unit.HOURS}
        return by_ending.get(self.name.rpartition(".")[2], Unit.NONE)

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        type_text = _TYPE_TEXT.get(self.type, "")
        validator = self.validator
        if isinstance(validator, Between) and self.type in (SettingType.INT, SettingType.SHORT):
            validator = validator.within(2 ** (_WHOLE_NUMBER_BITS[self.type] - 1) - 1)
        rule = "" if validator is None else validator.describe(self.unit)
        if self.type is SettingType.LIST and rule:
            return rule
        return ", ".join(part for part in (type_text, rule) if part) or "any text"

    def parse(self, text: str) -> SettingValue:
        """The value that `text` stands for; InvalidSetting says what would be allowed."""
        if len(text) > TEXT_BYTES_MAX or len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
            raise InvalidSetting(f"the value of {self.name} is too long: at most {TEXT_BYTES_MAX} bytes are allowed")
        value = self._read(text.strip())
        shown = "(hidden)" if self.is_sensitive else shortened(text)
        if value is None or (self.validator is not None and not self.validator.allows(value)):
            raise InvalidSetting(f"{self.name}={shown} is not allowed; it must be {self.allowed}")
        if self.unsupported and value != self.default:
            raise InvalidSetting(
                f"{self.name}={shown} is not supported: Barnabas has no {self.unsupported}; leave it out or set it "
                f"to {self.format(self.default)}"
            )
        return value

    def _read(self, text: str) -> SettingValue:
        """`text` by type alone, or None when it is not of the type."""
        match self.type:
            case SettingType.BOOLEAN:
                return {"true": True, "false": False}.get(text.lower())
            case SettingType.INT | SettingType.SHORT | SettingType.LONG:
                return _read_whole_number(text, _WHOLE_NUMBER_BITS[self.type])
            case SettingType.DOUBLE:
                number = float(text) if _NUMBER.fullmatch(text) else math.inf
                return number if math.isfinite(number) else None
            case SettingType.LIST:
                return tuple(dict.fromkeys(member.strip() for member in text.split(","))) if text else ()
            case SettingType.STRING | SettingType.CLASS | SettingType.PASSWORD:
                return text

    def format(self, value: SettingValue) -> str:
        """The text that `parse` reads back as `value`, in Kafka's spelling; empty for a value that is not
        set."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return repr(value).replace("e+", "E").replace("e-", "E-")
        return str(value)


def _read_whole_number(text: str, bits: int) -> int | None:
    # The length is bounded before int() sees it: Python refuses thousands of digits with an error of its own.
    if not _WHOLE_NUMBER.fullmatch(text) or len(text.lstrip("+-0")) > _WHOLE_NUMBER_DIGITS_MAX:
        return None
    number = int(text.lstrip("+-").lstrip("0") or "0") * (-1 if text.startswith("-") else 1)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


class SettingTable:
    """Settings of one kind, in the order in which they are shown."""

    def __init__(self, kind: str, settings: Iterable[Setting]) -> None:
        self.kind = kind
        self._settings: dict[str, Setting] = {}
        for setting in settings:
            assert setting.name not in self._settings, f"{setting.name} is listed twice"
            self._settings[setting.name] = setting

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._settings.values())

    def __len__(self) -> int:
        return len(self._settings)

    def __contains__(self, name: str) -> bool:
        return name in self._settings

    def __getitem__(self, name: str) -> Setting:
        """The setting of this name; InvalidSetting names the nearest right one."""
        setting = self._settings.get(name)
        if setting is None:
            near = self._nearest(name)
            hint = f"; did you mean {near}?" if near else ""
            raise InvalidSetting(f"there is no {self.kind} setting {shortened(name)}{hint}")
        return setting

    def parse(self, texts: Mapping[str, str]) -> dict[str, SettingValue]:
        """The values of those settings that are given."""
        return {name: self[name].parse(text) for name, text in texts.items()}

    def defaults(self) -> dict[str, SettingValue]:
        return {setting.name: setting.default for setting in self}

    def _nearest(self, name: str) -> str | None:
        if len(name) > SHOWN_LENGTH_MAX:  # nobody mistyped that, and it would take long to compare
            return None
        for setting in self:
            if any(synonym.name == name for synonym in setting.synonyms):
                return setting.name
        public_names = [setting.name for setting in self if not setting.is_internal]
        return next(iter(difflib.get_close_matches(name, public_names, n=1)), None)


def parse_assignment(text: str) -> tuple[str, str]:
    """`NAME=VALUE` from a command line."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise InvalidSetting(f"{text!r} is not of the form NAME=VALUE")
    return name.strip(), value


_DURATIONS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000))
_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def with_unit(number: float, unit: Unit) -> str:
    """A number as it is written, with its human size behind it where that is exact: '604800000 (7 days)'."""
    if number in (LONG_MAX, DOUBLE_MAX):
        return f"{number} (no limit)".replace("e+", "E")
    human = _human_size(number) if unit is Unit.BYTES else _human_duration(number, unit)
    return f"{number} ({human})" if human else str(number)


def _human_size(number: float) -> str:
    for name, size in _SIZES:
        if number >= size and number % size == 0:
            return f"{number // size:g} {name}"
    return ""


def _human_duration(number: float, unit: Unit) -> str:
    if unit is Unit.NONE:
        return ""
    unit_ms = 1 if unit is Unit.MILLISECONDS else unit.value
    milliseconds = number * unit_ms
    for name, size in _DURATIONS:
        # A number that is already in this unit needs no second reading.
        if milliseconds >= size and milliseconds % size == 0:
            count = milliseconds // size
            return "" if size == unit_ms else f"{count:g} {name}" + ("" if count == 1 else "s")
    return ""
