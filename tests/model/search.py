"""Searches over worlds: breadth first, at random, and the shortest form of what was found."""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.model.world import Action, Budget, Violation, World, new_world

_WEIGHTS: Final = {
    "fetch": 6.0,
    "prove": 2.0,
    "image": 4.0,
    "produce": 3.0,
    "watch": 3.0,
    "decide": 3.0,
    "deliver": 3.0,
    "expand": 4.0,
    "shrink": 1.0,
    "repeat": 1.0,
    "restart": 1.5,
    "register": 1.5,
    "kill": 0.4,
    "power": 0.3,
    "expire": 0.4,
    "lower": 0.3,
}
_WALK_LENGTH: Final = 60


@dataclass(frozen=True, slots=True)
class Found:
    """A history that breaks the promise."""

    trace: tuple[Action, ...]
    violation: str

    def __str__(self) -> str:
        return "\n".join([self.violation, *(" ".join(map(str, action)) for action in self.trace)])


def replay(trace: Sequence[Action], budget: Budget | None = None) -> Found | None:
    """Skips what cannot happen; None when nothing is broken."""
    world, done = new_world(budget), []
    for action in trace:
        if action not in list(world.actions()):
            continue
        done.append(action)
        try:
            world.apply(action)
            world.check()
        except Violation as violation:
            return Found(tuple(done), str(violation))
    return None


def shortened(found: Found, budget: Budget) -> Found:
    best, place = found, 0
    while place < len(best.trace):
        shorter = replay([*best.trace[:place], *best.trace[place + 1 :]], budget)
        if shorter is not None and len(shorter.trace) < len(best.trace):
            best = shorter
        else:
            place += 1
    return best


def search_breadth_first(budget: Budget, worlds_max: int) -> tuple[Found | None, int]:
    """All histories, the shortest first, until there are that many worlds; with how many there were."""
    first = new_world(budget)
    seen = {first.key()}
    waiting: deque[tuple[World, tuple[Action, ...]]] = deque([(first, ())])
    while waiting and len(seen) < worlds_max:
        world, trace = waiting.popleft()
        for action in list(world.actions()):
            following = world.copy()
            try:
                following.apply(action)
                key = following.key()
                if key in seen:
                    continue
                following.check()
            except Violation as violation:
                return Found((*trace, action), str(violation)), len(seen)
            seen.add(key)
            waiting.append((following, (*trace, action)))
    return None, len(seen)


def walk(budget: Budget, seed: int) -> Found | None:
    """One history at random, and then everything heals."""
    chance = random.Random(seed)
    weights = {name: weight * chance.choice((0.3, 1, 1, 2)) for name, weight in _WEIGHTS.items()}
    world, trace = new_world(budget), []
    for _ in range(_WALK_LENGTH):
        actions = list(world.actions())
        if not actions:
            break
        [action] = chance.choices(actions, [weights[str(one[0])] for one in actions])
        trace.append(action)
        try:
            world.apply(action)
            world.check()
        except Violation as violation:
            return shortened(Found(tuple(trace), str(violation)), budget)
    try:
        world.heal()
    except Violation as violation:
        return Found(tuple(trace), str(violation))
    return None
