"""When a broker may have given what a reader was shown.

A consumer fetches ahead, and holds what it has while its owner looks for a broker that has died. So a run of records
may be shown seconds after it was given, and in between the broker may have lost what it holds. But no run was given
before the last of its records was sent.
"""

from barnabas.base.ids import TopicPartition
from barnabas.sim.checkers.delays import Delays
from barnabas.sim.histories.events import History, Sent, Shown


class Readings:
    def __init__(self, history: History) -> None:
        self._delays = Delays(history)
        self._sent: dict[tuple[TopicPartition, bytes | None, bytes], float] = {}
        for event in history.of(Sent):
            if event.value is not None:
                self._sent.setdefault((event.partition, event.key, event.value), event.at)

    def given_after(self, event: Shown) -> float:
        """The earliest moment at which the broker may have given this."""
        usual = self._delays.given_after(event.client, event.at)
        sent = [self._sent_at(event.partition, record.key, record.value) for record in event.records]
        known = [at for at in sent if at is not None]
        return min(usual, max(known)) if known else usual

    def _sent_at(self, partition: TopicPartition, key: bytes | None, value: bytes | None) -> float | None:
        return None if value is None else self._sent.get((partition, key, value))
