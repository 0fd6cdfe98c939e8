"""How a broker that stops has others lead its partitions first: it asks the controller, and waits until it knows.

Partitions that nobody else in sync could lead stay with it until it is gone.
"""

from typing import Final

from barnabas.controller.seat import ControllerSeat
from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError

_VERSION: Final = ALL_APIS[ApiKey.BROKER_HEARTBEAT].version_max


async def hand_over(seat: ControllerSeat, seconds: float) -> None:
    """Returns when this broker's image says who leads now. `NetworkFailed` or `KafkaError` when nobody does it."""
    link = seat.control_link
    if link is None:
        await seat.require_controller().let_stop(seat.broker_id, seat.broker_epoch)
        return
    values = {
        "broker_id": seat.broker_id,
        "broker_epoch": seat.broker_epoch,
        "current_metadata_offset": seat.history.place.position,
        "want_fence": False,
        "want_shut_down": True,
        "offline_log_dirs": (),
    }
    answer = await link.ask(ApiKey.BROKER_HEARTBEAT, _VERSION, values, seconds)
    code = ErrorCode.of(answer.error_code.value)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"{link.name} moves no leaders")
    await seat.catch_up()
