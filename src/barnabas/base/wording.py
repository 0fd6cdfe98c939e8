"""How lists are put into messages."""

from collections.abc import Sequence
from typing import Final

_NAMES_SHOWN_MAX: Final = 5


def first_few(names: Sequence[object]) -> str:
    """The names, or the first of them and how many more there are."""
    shown = ", ".join(map(str, names[:_NAMES_SHOWN_MAX]))
    return shown if len(names) <= _NAMES_SHOWN_MAX else f"{shown} and {len(names) - _NAMES_SHOWN_MAX} more"
