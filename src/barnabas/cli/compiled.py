"""Which of the compiled modules this installation lacks.

They are optional: where one could not be built (no C compiler, no headers of Python) or does not load, code in Python
does its work, several times slower. pip shows nothing of that, so the commands do.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

MODULES: Final = (
    "barnabas.net._framed_range",
    "barnabas.records._kernel",
    "barnabas.wire._commit",
    "barnabas.wire._fetch",
    "barnabas.wire._produce",
)


def missing_modules() -> Mapping[str, str]:
    """The names of those that cannot be imported, each with the reason."""
    missing = {}
    for name in MODULES:
        try:
            import_module(name)
        except ImportError as error:
            missing[name] = str(error)
    return missing


def form_of(missing: Mapping[str, str]) -> str:
    """In two words what is installed."""
    if not missing:
        return "compiled"
    return "pure Python" if len(missing) == len(MODULES) else "compiled in part"
