"""Long work in steps: a generator that pauses where others may be served, and returns its result at the end.

Reading and writing of messages is done so, because a request or an answer may be long; whoever has nobody to look after
takes all steps at once.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

_Result = TypeVar("_Result")

Steps: TypeAlias = Generator[None, None, _Result]


def finish(steps: Steps[_Result]) -> _Result:
    """Takes all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
