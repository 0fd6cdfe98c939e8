"""Rules for the texts of a broker's settings that `barnabas.base.settings` does not have. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from barnabas.base.settings import SettingValue, Unit

PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class PairsWithNumber:
    """`NAME:NUMBER` pairs between commas, such as a limit for each address."""

    _PAIR = re.compile(r"\s*\S+:[0-9]{1,9}\s*")

    def allows(self, value: SettingValue) -> bool:
        assert isinstance(value, str), "pairs are written in a text"
        return not value or all(self._PAIR.fullmatch(pair) for pair in value.split(","))

    def describe(self, unit: Unit) -> str:
        return "a comma-separated list of ADDRESS:NUMBER (may be empty)"


@dataclass(frozen=True, slots=True)
class HostAndPort:
    """`HOST:PORT`, an IPv6 address in brackets."""

    _ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^:/\[\]\s]*)):(?P<port>[0-9]{1,5})")

    def allows(self, value: SettingValue) -> bool:
        assert isinstance(value, str), "an address is a text"
        return self.split(value) is not None

    def describe(self, unit: Unit) -> str:
        return "HOST:PORT"

    @classmethod
    def split(cls, text: str) -> tuple[str, int] | None:
        """None when it is no such address."""
        match = cls._ADDRESS.fullmatch(text)
        if match is None or int(match["port"]) > PORT_MAX:
            return None
        return match["v6"] or match["host"] or "", int(match["port"])
