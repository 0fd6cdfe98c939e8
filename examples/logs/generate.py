"""Log lines of a shop's services. The lines come from a seed alone, and so do their times. Pure, but for the command.

```
2024-05-01T10:00:02.417Z ERROR payments [9f31c2d4] card declined: code=51 after 212 ms
2024-05-01T10:00:02.633Z INFO  search cache warmed with 1840 entries
```

A line is made every 200 ms on average, and sent a little later; lines are in the order of sending. What is special:

| what | how much | what becomes of it |
|---|---|---|
| an incident: payments fails often, checkout with it | minutes 3 to 5 of every 15 | counts of errors that stand out |
| out of order: sent up to 20 s late | 10 % | counts |
| late: sent 5 to 10 minutes late | `late_share`, 0.2 % | is kept, but does not count once its minute is closed |
| unparsable: stack traces, half lines, wrong times, no text | 1 %, besides the lines | dead letters |
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

from examples.producing import Delays, Event, Record, Topic, in_order_of_sending, run_command

TOPIC: Final = "log-lines"
TOPICS: Final = (Topic(TOPIC, 2), Topic("log-errors"), Topic("logs-dead"))
START: Final = datetime(2024, 5, 1, 10, tzinfo=UTC)

_PAUSE_SECONDS: Final = 0.2
_OUT_OF_ORDER: Final = 0.1
_OUT_OF_ORDER_SECONDS: Final = 20.0
_LATE: Final = 0.002
_LATE_SECONDS: Final = (300.0, 600.0)
_UNPARSABLE: Final = 0.01
_WITH_REQUEST: Final = 0.8

_SERVICES: Final = ("gateway", "checkout", "payments", "search", "inventory")
_LEVELS: Final = ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_USUAL: Final = (10.0, 75.0, 12.0, 2.9, 0.1)
_TROUBLED: Final = {"payments": (5.0, 40.0, 15.0, 38.0, 2.0), "checkout": (8.0, 60.0, 15.0, 17.0, 0.0)}
_TROUBLE_MINUTES: Final = range(3, 6)
_TROUBLE_PERIOD_MINUTES: Final = 15

_MESSAGES: Final = {
    "DEBUG": ("pool has {number} idle connections", "feature flags: {{new_cart=true, beta={flag}}}"),
    "INFO": (
        "GET /products/{number} 200 in {took} ms",
        "order {number} accepted: {few} items, total={price} EUR",
        "cache warmed with {number} entries",
        "user logged in from 10.0.{few}.{few}",
    ),
    "WARN": (
        "slow query: SELECT * FROM orders WHERE id = {number} took {took} ms",
        'retry {few} of 5: "connection reset by peer"',
        "stock of article {number} is down to {few}",
    ),
    "ERROR": (
        "card declined: code={few} after {took} ms",
        "order {number} failed: payment service did not answer (timeout={took} ms)",
        "cannot reserve article {number}: überbucht, {few} left",
    ),
    "FATAL": ("out of file descriptors: {number} open; restarting",),
}
_NO_LINES: Final = (
    b"    at com.shop.payments.CardGateway.charge(CardGateway.java:212)",
    b"Caused by: java.net.SocketTimeoutException: Read timed out",
    b"2024-05-01T10:0",
    b"2024-13-45T99:00:00Z ERROR payments a month that there is not",
    b"2024-05-01T10:00:00.000Z LOUD gateway a level that there is not",
    b"2024-05-01T10:00:00.000Z ERROR",
    b"\x80\x04\x95 not text \xff",
    b"",
    None,
)


def log_lines(seed: int, late_share: float = _LATE) -> Iterator[Record]:
    """Without end, in the order of sending."""
    delays = Delays(_OUT_OF_ORDER, _OUT_OF_ORDER_SECONDS, late_share, _LATE_SECONDS)
    return in_order_of_sending(_events(Random(seed), delays))


def _events(random: Random, delays: Delays) -> Iterator[Event]:
    seconds = 0.0
    while True:
        seconds += random.expovariate(1 / _PAUSE_SECONDS)
        service = random.choice(_SERVICES)
        line = _line(random, service, seconds).encode()
        yield Event(seconds, delays.draw_seconds(random), Record(TOPIC, service.encode(), line))
        if random.random() < _UNPARSABLE:
            yield Event(seconds, 0.0, Record(TOPIC, service.encode(), random.choice(_NO_LINES)))


def _line(random: Random, service: str, seconds: float) -> str:
    at = START + timedelta(milliseconds=round(seconds * 1000))
    is_troubled = int(seconds // 60) % _TROUBLE_PERIOD_MINUTES in _TROUBLE_MINUTES
    weights = _TROUBLED.get(service, _USUAL) if is_troubled else _USUAL
    (level,) = random.choices(_LEVELS, weights)
    message = random.choice(_MESSAGES[level]).format(
        number=random.randint(100, 9_999),
        few=random.randint(1, 60),
        took=random.randint(1, 3_000),
        price=random.randint(500, 30_000) / 100,
        flag=random.choice(("true", "false")),
    )
    request = f" [{random.getrandbits(32):08x}]" if random.random() < _WITH_REQUEST else ""
    time = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{time} {level:5} {service}{request} {message}"


if __name__ == "__main__":
    run_command("Send log lines of a shop's services to the topic log-lines.", TOPICS, log_lines)
