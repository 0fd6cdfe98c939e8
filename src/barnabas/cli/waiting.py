"""What `barnabas produce` and `consume` say while they wait for a broker: for which one, and why. Pure.

Nothing for two seconds; then a line, and again when the reason changes; one more when it is over. A producer, whose
records are at stake, also says how many wait, and repeats it every half minute.
"""

from typing import Final

from barnabas.base.addresses import address_text
from barnabas.cli.output import plural
from barnabas.client.producing.delivery_status import DeliveryStatus, Obstacle
from barnabas.wire.errors import ErrorCode, KafkaError

SILENT_SECONDS: Final = 2.0
REPEAT_SECONDS: Final = 30.0

_REASONS: Final = {
    ErrorCode.KAFKA_STORAGE_ERROR: "its disk is full or has failed",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "it does not lead the partition now",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas requires",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "fewer replicas are in sync than min.insync.replicas requires",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not know the topic",
    ErrorCode.UNKNOWN_TOPIC_ID: "it does not know the topic",
    ErrorCode.REQUEST_TIMED_OUT: "the replicas did not confirm it in time",
}
"""Apache Kafka answers these without a word."""


class WaitingReport:
    def __init__(self, now: float) -> None:
        self._moved_at = now
        self._delivered_records = 0
        self._said_at = 0.0
        self._said: str | None = None

    def line(self, status: DeliveryStatus, now: float) -> str | None:
        """What there is to say now, if anything."""
        has_moved = status.delivered_records != self._delivered_records
        if has_moved or not status.pending_records:
            self._moved_at = now
            self._delivered_records = status.delivered_records
            was_waiting, self._said = self._said is not None, None
            return "records are accepted again" if was_waiting and has_moved else None
        if now < self._moved_at + SILENT_SECONDS:
            return None
        reason = waiting_reason(status.obstacles)
        if reason == self._said and now < self._said_at + REPEAT_SECONDS:
            return None
        self._said, self._said_at = reason, now
        return f"waiting for {reason}; {plural(status.pending_records, 'record')} not delivered yet, Ctrl-C gives up"


class ReadingReport:
    """For a reader that has received no record for `SILENT_SECONDS`."""

    def __init__(self) -> None:
        self._said: str | None = None

    def line(self, problem: Exception | None) -> str | None:
        reason = None if problem is None else str(problem)
        if reason == self._said:
            return None
        self._said = reason
        return "records can be read again" if reason is None else f"waiting: {reason}"


def waiting_reason(obstacles: tuple[Obstacle, ...]) -> str:
    """ "broker 1 (127.0.0.1:9092): orders-0: cannot write …: No space left on device (KAFKA_STORAGE_ERROR)".

    Of several obstacles one that has a known problem.
    """
    obstacle = next((one for one in obstacles if one.problem is not None), obstacles[0])
    others = f", and for {plural(len(obstacles) - 1, 'other partition')}" if len(obstacles) > 1 else ""
    problem = _problem_text(obstacle)
    if obstacle.leader is None:
        return f"a leader of {obstacle.partition}{others}: {problem}"
    address = address_text(obstacle.leader.host, obstacle.leader.port)
    where = "" if address in problem else f" ({address})"
    return f"broker {obstacle.leader.node_id}{where}{others}: {problem}"


def _problem_text(obstacle: Obstacle) -> str:
    problem = obstacle.problem
    if problem is None:
        return "no answer yet"
    if not isinstance(problem, KafkaError):
        return str(problem)
    is_wordless = problem.message in ("", str(obstacle.partition))
    reason = _REASONS.get(problem.code, problem.message) if is_wordless else problem.message
    return f"{reason} ({problem.code.name})" if reason else problem.code.name
