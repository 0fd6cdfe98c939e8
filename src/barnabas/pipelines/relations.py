"""What a query of SQL reads, as Spark's own parser sees it; and that it is a query.

`spark.sql` carries out a statement like DROP TABLE at once. So a step's text goes through `query_relations` first,
which parses it and runs nothing: what is not a query raises Spark's ParseException.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


def query_relations(spark: SparkSession, sql: str) -> list[str]:
    """The names that a query reads, each once, in the order of their first use. Names of its own CTEs are left
    out. A name of several parts belongs to a catalog, and keeps its dots."""
    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    plan = parser.parseQuery(sql.rstrip().rstrip(";"))
    return list(dict.fromkeys(_relations(plan, frozenset())))


def _relations(node: Any, hidden: frozenset[str]) -> Iterator[str]:
    """`hidden` are the names, in lower case, that a CTE around this node gives another meaning."""
    kind = node.getClass().getSimpleName()
    if kind == "UnresolvedRelation":
        parts = elements(node.multipartIdentifier())
        name = ".".join(parts)
        if name.lower() not in hidden:
            yield name
    elif kind == "UnresolvedWith":
        for definition in elements(node.cteRelations()):
            yield from _relations(definition._2(), hidden)
            hidden |= {str(definition._1()).lower()}
        yield from _relations(node.child(), hidden)
    else:
        for inner in (*elements(node.children()), *elements(node.innerChildren())):
            yield from _relations(inner, hidden)


def elements(sequence: Any) -> list[Any]:
    """The members of one of Scala's sequences."""
    return [sequence.apply(index) for index in range(sequence.size())]
