"""ProbeBroker: a broker that takes the controller for dead asks another one whether it cannot connect either. Our own
message, between brokers only.

Its classes have the form of kio's, so that `reader` and `values` read and write them.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

_KEY: Final = 10_003


def _number(kafka_type: str, default: int) -> Any:
    return field(default=default, metadata={"kafka_type": kafka_type})


class _Version0:
    __slots__ = ()
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = _KEY


@dataclass(frozen=True, kw_only=True)
class ProbeBrokerRequestV0(_Version0):
    broker_id: int = _number("int32", 0)
    broker_epoch: int = _number("int64", -1)
    """Of the registration that this is about."""


@dataclass(frozen=True, kw_only=True)
class ProbeBrokerResponseV0(_Version0):
    error_code: int = _number("error_code", 0)
    is_refused: bool = field(default=False, metadata={"kafka_type": "bool"})
    """Whether nobody listens where the registration says; false also when that is not known."""


PROBE_REQUESTS: Final = (ProbeBrokerRequestV0,)
PROBE_RESPONSES: Final = (ProbeBrokerResponseV0,)
"""By version."""
