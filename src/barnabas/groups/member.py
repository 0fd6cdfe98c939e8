"""A member of a group, as its coordinator knows it. Pure book-keeping; most of it is lost with the coordinator."""

from typing import Final

from barnabas.groups.effects import MemberRef
from barnabas.groups.protocols import Protocols

NO_TIMER: Final = 2**63


class Member:
    """A member of a group. `last_seen_ms` is all that a heartbeat changes: the session timer finds it when it fires."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "last_seen_ms",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "timer_at_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        """Has not been through a completed join yet: the first one may take longer than a session."""
        self.last_seen_ms = 0
        self.timer_at_ms = NO_TIMER

    def metadata_for(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    @property
    def ref(self) -> MemberRef:
        return MemberRef(self.member_id, self.instance_id, self.client_id, self.client_host)
