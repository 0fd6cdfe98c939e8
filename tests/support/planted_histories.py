"""Histories without a world, which take no time, and checkers that find what a test has planted."""

from barnabas.base.ids import TopicPartition
from barnabas.sim.checkers.table import Problem
from barnabas.sim.histories.director import Outcome
from barnabas.sim.histories.events import Event, Happened, History, OperationEnded, Sent
from barnabas.sim.histories.examination import Examined
from barnabas.sim.histories.plan import Plan

CHECKER = "planted"
OTHER_CHECKER = "other"
_SECONDS_EACH = 0.1


def examined(plan: Plan, *problems: Problem) -> Examined:
    """A history in which every operation takes a tenth of a second, and faults happen when they are due."""
    events: list[Event] = [Happened(fault.at, "broker-1", fault.kind) for fault in plan.faults]
    for actor in plan.actors:
        own = [operation for operation in plan.operations if operation.actor == actor.name]
        for number, operation in enumerate(own, 1):
            at = number * _SECONDS_EACH
            if operation.action == "send":
                partition = TopicPartition(str(operation.arguments["topic"]), 0)
                events.append(Sent(at, actor.name, partition, None, b"", -1, False, number))
            events.append(OperationEnded(at, actor.name, operation.action, _SECONDS_EACH))
    events.sort(key=lambda event: event.at)
    seconds = events[-1].at if events else 0.0
    return Examined(plan, Outcome(History(events, is_complete=True), f"trace of {plan.seed}", 1, seconds), problems)


def clean(plan: Plan) -> Examined:
    return examined(plan)


def third_fails(plan: Plan) -> Examined:
    """Of the seeds 3, 13, 23, … whatever the plan is."""
    return examined(plan, *[Problem(CHECKER, f"planted in {plan.seed}")] * (plan.seed % 10 == 3))


def raises(plan: Plan) -> Examined:
    raise RuntimeError("the checker has a bug")


def dies(plan: Plan) -> Examined:
    raise SystemExit(7)


def hangs(plan: Plan) -> Examined:
    while True:
        pass
