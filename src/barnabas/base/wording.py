"""How lists are put into messages."""

from collections.abc import Sequence
from typing import Final

_NAMES_SHOWN_MAX: Final = 5


def first_few(names: Sequence[object], count: int | None = None) -> str:
    """The names, or the first of them and how many more there are; `count` of them, where not all are named."""
    shown = ", ".join(map(str, names[:_NAMES_SHOWN_MAX]))
    more = (len(names) if count is None else count) - min(len(names), _NAMES_SHOWN_MAX)
    return f"{shown} and {more} more" if more else shown
