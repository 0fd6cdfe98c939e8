"""What a PromQL expression names: enough of the language for the files under `deploy/`, and no more."""

import re
from typing import NamedTuple

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_RANGE = re.compile(r"\[[^\]]*\]")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"\b([A-Za-z_:][\w:]*)\s*(?:\{([^}]*)\}|(\())?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")')
_WORDS = {"and", "or", "unless", "bool", "offset"}


class Matcher(NamedTuple):
    label: str
    operator: str
    text: str

    @property
    def values(self) -> list[str]:
        """Those that it names, in a pattern the alternatives; none where it is a variable of a dashboard."""
        return [] if "$" in self.text else self.text.split("|" if "~" in self.operator else "\0")


class Selector(NamedTuple):
    name: str
    matchers: tuple[Matcher, ...]


class Expression(NamedTuple):
    selectors: list[Selector]
    grouped_by: list[str]
    """Labels after `by`, `on` and the like."""
    functions: set[str]


def parse(text: str) -> Expression:
    grouped_by = [label.strip() for match in _GROUPING.finditer(text) for label in match[1].split(",") if label.strip()]
    plain = _RANGE.sub("", _GROUPING.sub("", text))
    selectors, functions = [], set()
    for name, inner, call in _SELECTOR.findall(_outside_of_texts(plain)):
        if call:
            functions.add(name)
        elif name not in _WORDS:
            matchers = [Matcher(label, operator, value[1:-1]) for label, operator, value in _MATCHER.findall(inner)]
            selectors.append(Selector(name, tuple(matchers)))
    return Expression(selectors, grouped_by, functions)


def _outside_of_texts(plain: str) -> str:
    """Texts stand in matchers alone here, which are read whole."""
    rest = re.sub(r"\{[^}]*\}", "", plain)
    assert not _TEXT.search(rest), f"a text that is no matcher: {plain}"
    return plain
