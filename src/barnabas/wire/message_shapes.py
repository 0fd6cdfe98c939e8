"""What a reader makes of a message: an instance of kio's class for its version, or of a view.

A *view* is one named tuple for all versions of a message (`request_views`). Its fields are those of kio's classes
by name, except that a duration is an integer with its unit, `timeout_ms`. What a version lacks has a default in the
view, and what the view does not declare is read and dropped. A nested message is a view, too, named in the field's
annotation: `Sequence[CreatableTopic]`, or `Cursor | None`.

A view that does not fit a version fails an assertion when that version is first read; a test walks all of them.
"""

import barnabas.wire.kio_without_hypothesis  # noqa: F401 # before kio

# isort: split
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from typing import Any, Final, NamedTuple, get_args

from kio.serial._introspect import EntityField, EntityTupleField, classify_field

_DURATIONS: Final = frozenset({"timedelta_i32", "timedelta_i64"})


class Place(NamedTuple):
    """Where the value of one field goes."""

    name: str | None
    """None when it is dropped."""
    view: Any = None
    """Of a nested message; None for kio's own class."""


class Shape(NamedTuple):
    make: Callable[..., Any]
    """Called with the values by the names of their places."""
    places: Mapping[str, Place]
    """By kio's names of the fields."""
    is_view: bool


def shape_of(schema: Any, view: Any = None) -> Shape:
    """Of one of kio's message classes, as that class or as a view."""
    if view is None:
        return Shape(schema, {field.name: Place(field.name) for field in fields(schema)}, is_view=False)
    places = {field.name: _place(field, view.__annotations__) for field in fields(schema)}
    filled = {place.name for place in places.values()}
    missing = [name for name in view._fields if name not in filled and name not in view._field_defaults]
    assert not missing, f"{view.__name__} needs {missing}, which {_title(schema)} does not have"
    return Shape(view, places, is_view=True)


def plain_name(field: "Field[Any]") -> str:
    """What a field is called where durations are numbers."""
    return f"{field.name}_ms" if field.metadata.get("kafka_type") in _DURATIONS else field.name


def view_in(annotation: Any) -> Any:
    """The view that an annotation names, or None."""
    if hasattr(annotation, "_fields"):
        return annotation
    return next((view for one in get_args(annotation) if (view := view_in(one)) is not None), None)


def _place(field: "Field[Any]", declared: Mapping[str, Any]) -> Place:
    name = plain_name(field)
    if name not in declared:
        return Place(None)
    is_nested = isinstance(classify_field(field), EntityField | EntityTupleField)
    view = view_in(declared[name])
    assert (view is not None) is is_nested, f"{name} is a nested message on one side only"
    return Place(name, view)


def _title(schema: Any) -> str:
    return f"{schema.__name__} version {schema.__version__}"
