"""The names of nodes, under ZooKeeper's rules. Pure.

A path starts with `/`, has no empty, `.` or `..` component and does not end with `/`; the root is `/`. Characters that
ZooKeeper refuses (control characters, surrogates, private use) are refused here, too, so that every store accepts the
same paths.
"""

import re
from collections.abc import Iterable
from typing import Final

from barnabas.metadata.errors import InvalidPath

ROOT: Final = "/"
_REFUSED_CHARACTER: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_PLAIN_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_<>-][A-Za-z0-9_<>.-]*)+")


def check_path(path: str) -> None:
    """Raises `InvalidPath` for what is not a path."""
    if not _PLAIN_PATH.fullmatch(path) and path != ROOT and (problem := _problem(path)):
        raise InvalidPath(path, problem)


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]


def child_path(parent: str, name: str) -> str:
    return f"/{name}" if parent == ROOT else f"{parent}/{name}"


def with_parents(paths: Iterable[str]) -> list[str]:
    """The paths and all nodes on the way to them, each once, parents first; without the root."""
    wanted: dict[str, None] = {}
    for path in paths:
        lineage = [path]
        while (path := parent_of(path)) != ROOT:
            lineage.append(path)
        wanted.update(dict.fromkeys(reversed(lineage)))
    return list(wanted)


def sequential_path(prefix: str, number: int) -> str:
    return f"{prefix}{number:010d}"


def _problem(path: str) -> str | None:
    if not path.startswith("/"):
        return "a path starts with /"
    if path.endswith("/"):
        return "a path does not end with /"
    if _REFUSED_CHARACTER.search(path):
        return "a path has no control, surrogate or private characters"
    for name in path[1:].split("/"):
        if not name:
            return "a path has no empty component"
        if name in (".", ".."):
            return f"a path has no component {name!r}"
    return None
