"""Page views of a shop, and its users. Both come from a seed alone, and so do their times. Pure, but for the command.

First every user is written once; then views come, and now and then a user that changes. What is special:

| what | how much | what becomes of it |
|---|---|---|
| users that change their plan or name | with 1 % of the views | later views are joined with what they are then |
| users that are deleted (tombstones), some come back | with 0.3 % of the views | their views are joined with nothing |
| visitors who were never users | 2 of 42 | the same |
| out of order: sent up to 3 minutes late | 15 % | counts |
| late: sent 1 to 3 hours late, from a phone without a network | `late_share`, 0.2 % | is kept, and in no session |
| malformed | 1 %, besides the views | dead letters |

Someone visits every two hours or so, and looks at some pages a few seconds to some minutes apart; some pause for nearly
the 30 minutes that end a session, or for a little more.
"""

import heapq
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

from examples.producing import Delays, Event, Record, Topic, in_order_of_sending, run_command

VIEWS: Final = "page-views"
USERS: Final = "users"
TOPICS: Final = (
    Topic(VIEWS, 2),
    Topic(USERS, 1, {"cleanup.policy": "compact"}),
    Topic("sessions"),
    Topic("views-dead"),
)
START: Final = datetime(2024, 5, 1, 8, tzinfo=UTC)

_USERS: Final = 40
_VISITORS: Final = 42
_FIRST_NAMES: Final = ("Ada", "Björn", "Chloé", "Dipti", "Emre", "Fatou", "Goro", "Hana", "Iris", "João")
_COUNTRIES: Final = ("DE", "FR", "IN", "JP", "PT", "SN", "TR")
_PLANS: Final = ("free", "plus", "pro")
_PAGES: Final = ("/", "/search", "/product/7", "/product/12", "/product/31", "/cart", "/checkout", "/help")

_BETWEEN_VISITS_SECONDS: Final = 7_200.0
_GOES_ON: Final = 0.8
_PAUSES_SECONDS: Final = ((2.0, 240.0), (1_500.0, 1_795.0), (1_805.0, 2_400.0))
_PAUSE_WEIGHTS: Final = (94.0, 3.0, 3.0)
_OUT_OF_ORDER: Final = 0.15
_OUT_OF_ORDER_SECONDS: Final = 180.0
_LATE: Final = 0.002
_LATE_SECONDS: Final = (3_600.0, 10_800.0)
_CHANGE: Final = 0.01
_DELETION: Final = 0.003
_MALFORMED: Final = 0.01
_NO_VIEWS: Final = (
    b'{"user": "u003", "page": "/cart", "a',
    b'{"user": "u003", "page": "/cart", "at": "yesterday"}',
    b'{"page": "/cart", "at": "2024-05-01T08:00:00.000Z"}',
    b'["u003", "/cart"]',
    b"\xff\xfe\x00",
    None,
)


def shop_records(seed: int, late_share: float = _LATE) -> Iterator[Record]:
    """Without end, in the order of sending: each user once, then views with changes of users between them."""
    random = Random(seed)
    delays = Delays(_OUT_OF_ORDER, _OUT_OF_ORDER_SECONDS, late_share, _LATE_SECONDS)
    for number in range(_USERS):
        yield _user(random, number)
    yield from in_order_of_sending(_events(random, delays))


def _events(random: Random, delays: Delays) -> Iterator[Event]:
    # When everybody looks at the next page, and whether that one goes on with a visit.
    due = [(random.uniform(0, _BETWEEN_VISITS_SECONDS), number) for number in range(_VISITORS)]
    heapq.heapify(due)
    while True:
        seconds, number = due[0]
        yield Event(seconds, delays.draw_seconds(random), _view(random, number, seconds))
        if random.random() < _MALFORMED:
            yield Event(seconds, 0.0, Record(VIEWS, _key(number), random.choice(_NO_VIEWS)))
        chance = random.random()
        if chance < _DELETION:
            yield Event(seconds, 0.0, Record(USERS, _key(random.randrange(_USERS)), None))
        elif chance < _DELETION + _CHANGE:
            yield Event(seconds, 0.0, _user(random, random.randrange(_USERS)))
        heapq.heapreplace(due, (seconds + _pause_seconds(random), number))


def _pause_seconds(random: Random) -> float:
    if random.random() >= _GOES_ON:
        return 2_400 + random.expovariate(1 / _BETWEEN_VISITS_SECONDS)
    (bounds,) = random.choices(_PAUSES_SECONDS, _PAUSE_WEIGHTS)
    return random.uniform(*bounds)


def _key(number: int) -> bytes:
    return b"u%03d" % number


def _user(random: Random, number: int) -> Record:
    value = {
        "name": f"{random.choice(_FIRST_NAMES)} {number}",
        "country": random.choice(_COUNTRIES),
        "plan": random.choice(_PLANS),
    }
    return Record(USERS, _key(number), json.dumps(value, ensure_ascii=False).encode())


def _view(random: Random, number: int, seconds: float) -> Record:
    at = START + timedelta(milliseconds=round(seconds * 1000))
    value = {
        "user": _key(number).decode(),
        "page": random.choice(_PAGES),
        "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    return Record(VIEWS, _key(number), json.dumps(value).encode())


if __name__ == "__main__":
    run_command("Send page views, and the users who look at them, of a shop.", TOPICS, shop_records)
