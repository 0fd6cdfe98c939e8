"""No record of an idempotent producer is stored twice.

Values are unique in a history, so a value that is there twice was written twice; tombstones have none, and tell
nothing. A broker forgets producers whose last record is older than a day, by its own clock and the record's timestamp,
as Kafka does: where its clock went ahead of the producers' by that much, it may take a batch that is sent again.
"""

from collections.abc import Iterator
from typing import Final

from barnabas.base.ids import Offset
from barnabas.sim.checkers.guarantees import clock_ahead_ms, damaged_partitions
from barnabas.sim.histories.events import History, Sent

_EXPIRY_MS: Final = 86_400_000
"""How long a producer without new records is known (`producer.id.expiration.ms`)."""


def check_duplicates(history: History) -> Iterator[str]:
    if clock_ahead_ms(history) >= _EXPIRY_MS:
        return
    damaged = damaged_partitions(history)
    senders = {event.value: event.client for event in history.of(Sent) if event.is_idempotent}
    for partition, log in history.final.items():
        if partition in damaged:
            continue
        first: dict[bytes, Offset] = {}
        for record in log.records:
            if record.value is None or record.value not in senders:
                continue
            offset = first.setdefault(record.value, record.offset)
            if offset != record.offset:
                yield (
                    f"{record.value!r} of the idempotent {senders[record.value]} is stored twice in {partition}: "
                    f"at offsets {offset} and {record.offset}"
                )
