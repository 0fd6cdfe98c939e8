"""Java properties text, the format of Kafka's `server.properties` and `meta.properties`.

One `name=value` per logical line. The separator is `=`, `:` or white space; a line that begins with `#` or
`!` is a comment; a line that ends in an odd number of backslashes goes on in the next one; `\\t \\n \\r \\f`
and `\\uXXXX` stand for characters, and a backslash before any other character stands for that character. A
name given twice keeps its last value, as in Java. Pure: text in, text out.
"""

import re
from collections.abc import Iterator, Mapping

from barnabas.base.errors import BarnabasError

_BLANK = " \t\f"
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_NAME = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_TO_ESCAPE = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


class InvalidProperties(BarnabasError, ValueError):  # noqa: N818
    """Text that is not Java properties; the message names the line."""


def parse_properties(text: str) -> dict[str, str]:
    """The names and values of a properties text, in the order of their first appearance."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        name_text = _NAME.match(line)
        assert name_text is not None, "the pattern matches the empty text"
        rest = line[name_text.end() :].lstrip(_BLANK)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        properties[_unescape(name_text.group(), number)] = _unescape(rest, number)
    return properties


def render_properties(properties: Mapping[str, str]) -> str:
    """The text that `parse_properties` (and Java) reads back as these names and values."""
    return "".join(f"{_escape(name, '=: #!')}={_escape(value, '')}\n" for name, value in properties.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blank ones, continuations joined, each with the number of its first line."""
    pending, first_number = "", 0
    for number, natural_line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = natural_line.lstrip(_BLANK)
        if not pending:
            if not line or line[0] in "#!":
                continue
            first_number = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
        else:
            yield first_number, pending + line
            pending = ""
    if pending:
        yield first_number, pending


def _unescape(text: str, line_number: int) -> str:
    def character(match: re.Match[str]) -> str:
        code = match.group(1)
        if code.startswith("u"):
            if len(code) != 5:
                raise InvalidProperties(f"line {line_number}: \\u must be followed by four hex digits")
            return chr(int(code[1:], 16))
        return _ESCAPED.get(code, code)

    return _ESCAPE.sub(character, text)


def _escape(text: str, separators: str) -> str:
    escaped = []
    for place, character in enumerate(text):
        if character in _TO_ESCAPE:
            escaped.append(_TO_ESCAPE[character])
        elif character in separators or (character == " " and place == 0):
            escaped.append("\\" + character)
        else:
            escaped.append(character)
    return "".join(escaped)
