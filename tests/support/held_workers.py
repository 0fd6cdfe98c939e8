"""An executor whose jobs wait until the test lets them run."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from barnabas.base.errors import BarnabasError


class HeldWorkers(Executor):
    """Runs nothing until it is told to; all of it in the caller's thread."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Callable[..., Any]]] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, function))
        return future

    def run_one(self) -> None:
        future, function = self.jobs.pop(0)
        try:
            future.set_result(function())
        except BarnabasError as error:
            future.set_exception(error)
