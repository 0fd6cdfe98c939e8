"""An executor without threads: what is submitted is done at once, by the caller."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class InlineExecutor(Executor):
    def submit(
        self, function: Callable[_Parameters, _Result], /, *arguments: _Parameters.args, **names: _Parameters.kwargs
    ) -> "Future[_Result]":
        future: Future[_Result] = Future()
        try:
            future.set_result(function(*arguments, **names))
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            future.set_exception(error)
        return future
