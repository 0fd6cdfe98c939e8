"""Which names a query of SQL reads, from its text alone, for drawing a pipeline without Spark. Pure.

What runs goes by Spark's own parser (`barnabas.pipelines.relations`).
"""

import re
from typing import Final

_SQL_TOKEN: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`((?:[^`]|``)*)`|([A-Za-z_]\w*)|([(),])|.", re.DOTALL
)
_OPENING: Final = ("from", "join", "table")
_CLOSING: Final = ("where", "group", "on", "select", "order", "having", "using", "union", "limit")


def names_in_sql(sql: str, known: list[str]) -> list[str]:
    """The known names that stand after FROM, JOIN and TABLE, in the order of their first use."""
    by_lower_name = {name.lower(): name for name in known}
    found: dict[str, None] = {}
    expects_name = False
    in_from_list = [False]
    """For each open bracket, whether it stands in a FROM: after a comma there, another name may come."""
    for match in _SQL_TOKEN.finditer(sql):
        word, mark = (match[1] or match[2] or "").lower(), match[3]
        if word:
            if expects_name and word in by_lower_name:
                found[by_lower_name[word]] = None
            if word in _OPENING or word in _CLOSING:
                in_from_list[-1] = word in _OPENING
            expects_name = word in _OPENING
        elif mark == "(":
            in_from_list.append(in_from_list[-1])
            expects_name = in_from_list[-1]
        elif mark == ")":
            in_from_list = in_from_list[:-1] or [False]
            expects_name = False
        elif mark == ",":
            expects_name = in_from_list[-1]
    return list(found)
