"""A mutant: one function or method of production code, replaced by one with a realistic mistake."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from barnabas.sim.histories.plan import Fault, Plan

Replacement = Callable[[Any], Any]
"""From the original function to the one that takes its place."""
Telling = Callable[[Plan], bool]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    bug: str
    """One sentence: what the code does wrong."""
    checkers: tuple[str, ...]
    """Each of these is right to catch it; one of them must."""
    owner: Any
    """The class, or the module that uses the function."""
    attribute: str
    replacement: Replacement
    telling: Telling
    """Which plans may show the bug: they are tried first."""
    brokers: int = 1
    """Of the histories that should catch it."""
    page: str | None = None
    """The scenario that catches it, instead of a seed."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The code has the bug within this block."""
        original = vars(self.owner)[self.attribute]
        setattr(self.owner, self.attribute, self.replacement(original))
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, original)


class Mutants:
    """Gathers the mutants of a module, in the order in which they are written."""

    def __init__(self, *, brokers: int = 1) -> None:
        self.all: list[Mutant] = []
        self._brokers = brokers

    def plant(
        self,
        name: str,
        bug: str,
        owner: Any,
        attribute: str,
        *,
        checkers: tuple[str, ...],
        telling: Telling = lambda plan: True,
        page: str | None = None,
    ) -> Callable[[Replacement], Replacement]:
        """Decorates the function that makes the replacement."""

        def add(replacement: Replacement) -> Replacement:
            mutant = Mutant(name, bug, checkers, owner, attribute, replacement, telling, self._brokers, page)
            self.all.append(mutant)
            return replacement

        return add


def with_fault(*kinds: str) -> Telling:
    """Plans that have a fault of one of these kinds."""
    return lambda plan: any(fault.kind in kinds for fault in plan.faults)


def loses_power(plan: Plan) -> bool:
    return any(_is_power_loss(fault) for fault in plan.faults)


def loses_power_slowly(plan: Plan) -> bool:
    """The power goes while the disk is slow: then much is under way."""
    slow = [
        (fault.at, fault.at + float(str(fault.arguments["seconds"])))
        for fault in plan.faults
        if fault.kind == "slow_disk"
    ]
    return any(start < fault.at < end for fault in plan.faults if _is_power_loss(fault) for start, end in slow)


def _is_power_loss(fault: Fault) -> bool:
    return fault.kind == "power_loss" or bool(fault.arguments.get("is_power_loss"))
