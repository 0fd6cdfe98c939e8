"""How to reach a ZooKeeper ensemble, and who may do what with the nodes that a session creates. Pure."""

import enum
import re
from dataclasses import dataclass, field
from typing import Final, Self

from barnabas.base.addresses import bracket_hint
from barnabas.base.errors import InvalidSetting
from barnabas.metadata.errors import InvalidPath
from barnabas.metadata.limits import CHROOT_BYTES_MAX
from barnabas.metadata.paths import ROOT, check_path

SESSION_TIMEOUT_MS: Final = 6_000
CONNECTION_TIMEOUT_MS: Final = 18_000

SECRET_PATHS: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/kafka-acl")
"""Where passwords, keys and rights are kept: Kafka's sensitive paths, and its access lists."""
SESSION_KEYS: Final = "/barnabas/session_keys"
"""Where brokers leave the keys of their sessions for each other (`barnabas.metadata.session_keys`)."""
OPEN_PATH: Final = "/consumers"
"""Where consumers of before Kafka 0.9 write: open to everybody, as Kafka leaves it."""

_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/\[\],]+)(?::(\d{1,5}))?")
_PORT_MAX: Final = 65_535


class Access(enum.Enum):
    """Who may do what with a node."""

    OPEN = "everybody may do everything"
    READABLE = "its creator may do everything, everybody may read"
    SECRET = "its creator alone"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files. Without `authorities` those of the system are trusted."""

    authorities: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    is_host_name_checked: bool = True


@dataclass(frozen=True, slots=True)
class SessionKey:
    """What it takes to attach to a session from anywhere, and so to end it: keep it secret."""

    session_id: int
    password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """`InvalidSetting` for what cannot be."""

    hosts: str
    """HOST[:PORT], several separated by commas."""
    chroot: str = ""
    """The path of the node that is our root; created when it is missing."""
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    connection_timeout_ms: int = CONNECTION_TIMEOUT_MS
    """How long to wait for the first connection."""
    identity: str | None = field(default=None, repr=False)
    """`user:password` of ZooKeeper's digest scheme."""
    has_access_lists: bool = False
    """Whether only the creator may change a node: Kafka's `zookeeper.set.acl`."""
    tls: TlsFiles | None = None

    def __post_init__(self) -> None:
        for host in self.hosts.split(","):
            match = _HOST.fullmatch(host.strip())
            if match is None or int(match[1] or 0) > _PORT_MAX:
                hint = bracket_hint(host)
                raise InvalidSetting(f"{host!r} is no address of a ZooKeeper server; it must be HOST:PORT{hint}")
        if self.chroot:
            _check_chroot(self.chroot)
        if self.identity is not None and self.identity.find(":") < 1:
            raise InvalidSetting("the identity for ZooKeeper must be USER:PASSWORD")
        if self.has_access_lists and self.identity is None and (self.tls is None or self.tls.certificate is None):
            raise InvalidSetting("access lists in ZooKeeper need an identity: a user with a password, or a certificate")

    @classmethod
    def from_connect(cls, connect: str) -> Self:
        """With the hosts and the chroot of a connect string: HOST:PORT,HOST:PORT/chroot."""
        hosts, slash, path = connect.strip().partition("/")
        return cls(hosts, chroot=f"/{path.rstrip('/')}" if slash and path.strip("/") else "")

    @property
    def host_count(self) -> int:
        return self.hosts.count(",") + 1

    def full_path(self, path: str) -> str:
        """The path on the server."""
        return self.chroot + path if path != ROOT else self.chroot or ROOT

    def own_path(self, full_path: str) -> str:
        """The path below the chroot."""
        return full_path[len(self.chroot) :] or ROOT

    @property
    def keeps_secrets(self) -> bool:
        """Whether a node can be created that nobody reads who has not this identity."""
        return self.identity is not None or self.has_access_lists

    def access_to(self, path: str) -> Access:
        """For a node that is created there."""
        if path.startswith(f"{SESSION_KEYS}/"):
            assert self.keeps_secrets, "a key is not left where everybody reads it"
            return Access.SECRET
        if not self.has_access_lists or path == OPEN_PATH:
            return Access.OPEN
        return Access.SECRET if path.startswith(SECRET_PATHS) else Access.READABLE


def _check_chroot(chroot: str) -> None:
    try:
        check_path(chroot)
    except InvalidPath as error:
        raise InvalidSetting(f"{chroot!r} cannot be a chroot in ZooKeeper: {error}") from error
    if len(chroot.encode()) > CHROOT_BYTES_MAX:
        raise InvalidSetting(f"the chroot {chroot} is longer than {CHROOT_BYTES_MAX} bytes")
