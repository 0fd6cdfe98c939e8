"""Who asks: one value for each connection, made when it is accepted.

Authorizer, throttle, faults, metrics and audit act on it, never on a frame or a socket. It does not change: when a
client tells more of itself (its client id in a header, its software in ApiVersions), the connection has a new one, and
requests that are under way keep theirs.
"""

from dataclasses import dataclass
from typing import Final

ANONYMOUS: Final = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class Caller:
    listener: str
    """The name of the listener that it came in by."""
    host: str
    principal: str = ANONYMOUS
    client_id: str = ""
    """What the client calls itself in its last request."""
    software: str = ""
    """Name and version of its library, if it has told them."""
