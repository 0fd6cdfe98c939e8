"""Lets a scenario happen, sentence after sentence, and asks the checkers in the end.

The page is the director of its history: it goes on with the next line when the line before is done, in virtual time. An
`expect` waits a while for what it wants (30 s, or `within …`), because clients work by themselves; one that names a
state which must last says for how long. At the end everything is healed and read once more, as in every history, and
all checkers must be silent.

`run` raises `ScenarioFailed` with the line, what was seen instead, and the story so far.
"""

from collections.abc import Awaitable, Callable
from typing import NoReturn

from barnabas.sim.checkers.table import CHECKERS, check
from barnabas.sim.histories.director import Outcome
from barnabas.sim.scenarios.clients import ProducingClient
from barnabas.sim.scenarios.doings import Doings
from barnabas.sim.scenarios.expectations import Expectations
from barnabas.sim.scenarios.language import Scenario, Statement
from barnabas.sim.scenarios.stage import Unexpected
from barnabas.sim.scenarios.story import Story


class ScenarioFailed(AssertionError):  # noqa: N818 - named as the fact that it is
    """What the page expects is not what happens."""


def run(scenario: Scenario) -> list[Outcome]:
    """ScenarioFailed when it does not go as the page says with one of its seeds, or when a checker finds something."""
    return [_Play(scenario, seed).play() for seed in scenario.seeds]


class _Play(Doings, Expectations):
    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(seed)
        self._scenario = scenario
        self._story = Story(self.world, self.recorder.history)
        self._ignored: dict[str, str] = {}

    def play(self) -> Outcome:
        history = self.recorder.history
        self.world.run(self._perform())
        history.is_complete = True
        problems = [problem for problem in check(history) if problem.checker not in self._ignored]
        if problems:
            self._fail(self._scenario.statements[-1], "\n".join(f"checker {problem}" for problem in problems))
        return Outcome(history, self.world.trace, self.world.events, self.world.loop.time())

    async def _perform(self) -> None:
        for statement in self._scenario.statements:
            self._story.tell(statement)
            action: Callable[..., Awaitable[None]] = getattr(self, f"do_{statement.action}")
            try:
                await action(**statement.arguments)
            except Unexpected as seen:
                self._fail(statement, f"{seen}")
            except Exception as error:  # noqa: BLE001 - whatever it is, the line where it happened helps
                self._fail(statement, f"{type(error).__name__}: {error}", error)
        self._look_for_failures()
        self.world.network.look_for_unanswered()
        for client in self._clients.values():
            client.kill()
        self.recorder.history.final.clear()
        await self._heal()
        if self._zookeeper is not None:
            await self._await_healing()
        await self._as_director(self._read_all)
        await self._read_all_disks()

    async def do_ignore(self, name: str, reason: str) -> None:
        if name not in CHECKERS:
            raise Unexpected(f"there is no checker '{name}'; there are {', '.join(CHECKERS)}")
        self._ignored[name] = reason

    def _look_for_failures(self) -> None:
        """A record that could not be sent is no side issue."""
        last = self._scenario.statements[-1]
        for client in self._clients.values():
            if isinstance(client, ProducingClient):
                for one in client.sendings:
                    if one.error is not None and not one.is_failure_expected:
                        self._fail(last, f"{one.item} of {client.name} failed, and no line expects it: {one.error}")

    def _fail(self, statement: Statement, seen: str, cause: BaseException | None = None) -> NoReturn:
        path = f"{self._scenario.path}:{statement.line}"
        raise ScenarioFailed(f"{path}: {statement.text}\n{seen}\n\nSeed {self.plan.seed}. {self._story}") from cause
