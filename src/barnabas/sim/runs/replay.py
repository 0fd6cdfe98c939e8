"""One plan again, told as a story: on its own, or with every log line among the events."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from barnabas.cli.output import console, plural, say
from barnabas.sim.histories.examination import Examined
from barnabas.sim.histories.plan import Plan
from barnabas.sim.runs.log_capture import captured_logs
from barnabas.sim.runs.story import Kind, StoryLine, tell, tell_end
from barnabas.sim.runs.verdicts import Examine

COMMAND: Final = "python -m barnabas.sim"
_STYLES: Final = {Kind.FAULT: "bold red", Kind.CLIENT: "", Kind.LOG: "dim"}


def replay(plan: Plan, examine: Examine) -> tuple[Examined, list[StoryLine]]:
    """The history, and what was logged in it."""
    with captured_logs() as lines:
        return examine(plan), lines


def seed_command(plan: Plan) -> str:
    brokers = f" --brokers {plan.brokers}" if plan.brokers != 1 else ""
    return f"{COMMAND} --seed {plan.seed}{brokers}"


def plan_command(path: Path) -> str:
    return f"{COMMAND} --plan {path}"


def say_story(examined: Examined, log_lines: Sequence[StoryLine], command: str) -> None:
    """On standard output: the plan's frame, the story, the end, the problems, and how to see it again."""
    for text in _frame(examined.plan):
        say(text)
    lines = tell(examined.outcome.history, log_lines)
    if sys.stdout.isatty():
        from rich.text import Text

        out = console()
        for line in lines:
            out.print(Text(str(line), _STYLES[line.kind]))
    else:
        for line in lines:
            say(str(line))
    for text in (*tell_end(examined.outcome.history), *problem_lines(examined), f"replay: {command}"):
        say(text)


def _frame(plan: Plan) -> Iterator[str]:
    """Everything of a plan but what the story tells."""
    yield from plan.with_parts((), ()).describe()
    operations, faults = plural(len(plan.operations), "operation"), plural(len(plan.faults), "fault")
    yield f"{operations} of {plural(len(plan.actors), 'client')}, {faults}"


def problem_lines(examined: Examined) -> list[str]:
    if not examined.problems:
        return ["no problem"]
    return [f"PROBLEM  {problem}" for problem in examined.problems]


def story_json(examined: Examined, log_lines: Sequence[StoryLine]) -> dict[str, object]:
    history = examined.outcome.history
    return {
        "seed": examined.plan.seed,
        "trace": examined.outcome.trace,
        "events": examined.outcome.events,
        "seconds": examined.outcome.seconds,
        "problems": [[problem.checker, problem.text] for problem in examined.problems],
        "story": [
            {"at": line.at, "who": line.who, "kind": line.kind.value, "text": line.text}
            for line in tell(history, log_lines)
        ],
    }
