"""The regular expression by which a source of text gives columns: `value_pattern`.

```
(?<at>\\S+) (?<level>[A-Z]+) (?<service>[\\w-]+): (?<message>.*)
```

It is Java's, for it is matched in the JVM, and must match a whole value. Each named group is a column of the schema.
Java allows no `_` in a group's name and finds groups by number only where Spark asks for them; so the names are taken
out here, and their numbers kept. `(?P<name>…)`, as Python writes it, is taken too.

Pure: no I/O.
"""

import re
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      \\Q.*?(?:\\E|\Z)                          # quoted: nothing in it has a meaning
    | \\k<(?P<reference>[A-Za-z_]\w*)>          # what a named group matched
    | \\.                                       # an escaped character
    | \(\?P?<(?P<name>[A-Za-z_]\w*)>            # a named group
    | (?P<group>\()(?!\?)                       # a group without a name, which has a number all the same
    | (?P<open>\[) | (?P<close>\])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class LinePattern:
    """`expression` has plain groups only and matches whole texts; `groups` has the number of each name."""

    expression: str
    groups: dict[str, int]


def read_line_pattern(text: str) -> LinePattern:
    """ValueError when a name comes twice, or is referred to before its group. Java finds what else is wrong."""
    groups: dict[str, int] = {}
    count = depth = 0

    def without_name(token: re.Match[str]) -> str:
        nonlocal count, depth
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth = max(depth - 1, 0)
        elif depth:
            return token[0]  # in a class of characters a parenthesis is one
        elif token["reference"]:
            if token["reference"] not in groups:
                raise ValueError(f"{token[0]} refers to no group before it")
            return rf"(?:\{groups[token['reference']]})"
        elif token["name"]:
            count += 1
            if token["name"] in groups:
                raise ValueError(f"there are two groups '{token['name']}'")
            groups[token["name"]] = count
            return "("
        elif token["group"]:
            count += 1
        return token[0]

    plain = _TOKEN.sub(without_name, text.strip())
    return LinePattern(rf"\A(?:{plain})\z", groups)
