"""Event loops on which the port is served."""

import asyncio

import pytest
import uvloop


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    def run_on_loop(coroutine):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(coroutine, 120))

    return run_on_loop
