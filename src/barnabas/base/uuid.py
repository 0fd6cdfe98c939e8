"""Identifiers of topics and log directories: `uuid.UUID`, written in Kafka's way.

Kafka's text is the sixteen bytes in URL-safe base64 without padding, 22 characters.
"""

import random
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from uuid import UUID

ZERO_UUID: Final = UUID(int=0)
"""Stands for "no topic id"."""

_RESERVED: Final = frozenset({ZERO_UUID, UUID(int=1)})
_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{22}(==)?")


def uuid_text(identifier: UUID) -> str:
    return urlsafe_b64encode(identifier.bytes).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> UUID:
    """The identifier behind Kafka's text; `ValueError` when it is not one."""
    if not _TEXT.fullmatch(text):
        raise ValueError(f"an identifier has 22 characters of URL-safe base64: {text[:32]!r}")
    return UUID(bytes=urlsafe_b64decode(text[:22] + "=="))


def new_uuid(source: random.Random) -> UUID:
    """A new identifier, never a reserved one, nor one whose text a command line would take for an option."""
    while True:
        identifier = UUID(int=source.getrandbits(128), version=4)
        if identifier not in _RESERVED and not uuid_text(identifier).startswith("-"):
            return identifier
