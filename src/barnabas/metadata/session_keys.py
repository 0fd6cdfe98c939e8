"""The key of a broker's session, left for the other brokers: they end it when the process is dead. Pure.

```
/barnabas/session_keys/N   {"version": 1, "session_id": "72", "password": "00ff…"}      ephemeral
```

It is written together with the registration, so its czxid is the broker epoch, and both go with the session that it is
the key of. Only the identity of the cluster's brokers can read it: without one it is not written.
"""

from barnabas.base.errors import BarnabasError
from barnabas.metadata.errors import CorruptNode
from barnabas.metadata.json_node import decode_json, encode_json
from barnabas.metadata.store import Node
from barnabas.metadata.zookeeper.zookeeper_options import SESSION_KEYS, SessionKey


class KeyMissing(BarnabasError):  # noqa: N818 - named as the fact that it is
    """There is a registration, but not the key of its session."""


def session_key_path(broker_id: int) -> str:
    return f"{SESSION_KEYS}/{broker_id}"


def encode_session_key(key: SessionKey) -> bytes:
    return encode_json({"version": 1, "session_id": str(key.session_id), "password": key.password.hex()})


def decode_session_key(path: str, data: bytes) -> SessionKey:
    fields = decode_json(path, data)
    try:
        return SessionKey(fields.number_in_text("session_id"), bytes.fromhex(fields.text("password")))
    except ValueError:
        raise CorruptNode(path, "password is not in hexadecimal digits") from None


def key_of_registration(
    broker_id: int, broker_epoch: int, registration: Node | None, left: Node | None
) -> SessionKey | None:
    """The key of the session that holds this very registration; None when the registration is gone.

    Another process of the same broker has another session, and with it another registration and another key.
    """
    if registration is None or registration.stat.czxid != broker_epoch:
        return None
    if left is None:
        raise KeyMissing("it has not left the key of its session")
    key = decode_session_key(session_key_path(broker_id), left.data)
    if left.stat.czxid != broker_epoch or key.session_id != registration.stat.ephemeral_owner:
        raise KeyMissing("the key that it left is that of another session")
    return key
