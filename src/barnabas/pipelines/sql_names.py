"""Which names a query of SQL reads, without Spark. Pure."""

import re
from typing import Final

_SQL_TOKEN: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`((?:[^`]|``)*)`|([A-Za-z_]\w*)|([(),])|.", re.DOTALL
)


def names_in_sql(sql: str, known: list[str]) -> list[str]:
    """The known names that a query reads, in the order of their first use: those after FROM, JOIN and TABLE.

    Spark finds out for sure; this is for the graph, and for knowing what a query needs before Spark runs.
    """
    by_lower_name = {name.lower(): name for name in known}
    found: dict[str, None] = {}
    expects_name = False
    in_from_list = False
    for match in _SQL_TOKEN.finditer(sql):
        word = (match[1] or match[2] or "").lower()
        if not word and not match[3]:
            continue
        if word and expects_name and word in by_lower_name:
            found[by_lower_name[word]] = None
        if word in ("from", "join", "table"):
            expects_name, in_from_list = True, True
        elif word in ("where", "group", "on", "select", "order", "having", "using", "union", "limit"):
            expects_name, in_from_list = False, False
        else:
            # FROM a, b and FROM (a JOIN b): after a comma or a bracket another name may come.
            expects_name = match[3] is not None and match[3] in ",(" and in_from_list
    return list(found)
