"""What the declarations of our own messages share: classes and fields in the form of kio's, so that `reader` and
`values` read and write them.
"""

from dataclasses import field
from typing import Any, ClassVar


class OwnMessage:
    """Version 0. A module's messages name their API in `__api_key__`, and later versions theirs."""

    __slots__ = ()
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int]


def number_field(kafka_type: str, default: int) -> Any:
    return field(default=default, metadata={"kafka_type": kafka_type})


def numbers_field(kafka_type: str) -> Any:
    return field(default=(), metadata={"kafka_type": kafka_type})


def text_field() -> Any:
    return field(default="", metadata={"kafka_type": "string"})


def flag_field() -> Any:
    return field(default=False, metadata={"kafka_type": "bool"})
