"""What was seen to be wrong while it happened: a bug that ended a broker, a call that never ended, something left
behind after a stop, a loop that was held up, a history that did not come to its end."""

from collections.abc import Iterator

from barnabas.sim.histories.events import History


def check_seen_at_once(history: History) -> Iterator[str]:
    yield from history.violations
