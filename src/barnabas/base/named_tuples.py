"""Named tuples for the places that make one for each request."""

from typing import Any, Final, Protocol, TypeVar

_Kind = TypeVar("_Kind", bound=tuple[Any, ...])


class _NewTuple(Protocol):
    def __call__(self, kind: type[_Kind], fields: tuple[object, ...], /) -> _Kind: ...


new_tuple: Final[_NewTuple] = tuple.__new__
"""Makes a named tuple of all its fields, in their order, without entering the Python function of its constructor."""
