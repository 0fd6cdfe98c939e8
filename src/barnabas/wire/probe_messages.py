"""ProbeBroker: a broker that takes the controller for dead asks another one whether it cannot connect either. Our own
message, between brokers only.

Its classes have the form of kio's, so that `reader` and `values` read and write them.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from barnabas.wire.own_messages import OwnMessage, flag_field, number_field


class _Version0(OwnMessage):
    __slots__ = ()
    __api_key__: ClassVar[int] = 10_003


@dataclass(frozen=True, kw_only=True)
class ProbeBrokerRequestV0(_Version0):
    broker_id: int = number_field("int32", 0)
    broker_epoch: int = number_field("int64", -1)
    """Of the registration that this is about."""


@dataclass(frozen=True, kw_only=True)
class ProbeBrokerResponseV0(_Version0):
    error_code: int = number_field("error_code", 0)
    is_refused: bool = flag_field()
    """Whether nobody listens where the registration says; false also when that is not known."""


PROBE_REQUESTS: Final = (ProbeBrokerRequestV0,)
PROBE_RESPONSES: Final = (ProbeBrokerResponseV0,)
"""By version."""
