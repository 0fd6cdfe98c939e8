"""Captures what the stills in docs show: `python -m tests.unit.project.capture_stills run|history`.

- `run` is the end of `make run` on a terminal: the lines that stay, and the results. It needs Java 17 and takes about
  two minutes, on a machine that has nothing else to do.
- `history` is a group on a broker of its own, whose members are processes: two join, one is killed and comes back, the
  other leaves. The group's record in `__barnabas_group_history` is kept beside the text, so that a test can tell the
  same story again.

`make docs` draws the stills from these texts.
"""

import os
import re
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from barnabas.testing import Broker
from tests.support.command_line import run_line
from tests.support.group_members import GroupMembers
from tests.unit.project.terminal_stills import COLUMNS, DOCS, HISTORY, RUN

HISTORY_RECORD = DOCS / "pictures" / "group-history.json"
HISTORY_COMMAND = "barnabas group describe kitchen --history"

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\r")
RESTYLED = re.compile(r"\x1b\[0m\x1b\[1m")
CURSOR_SHOWN = "\x1b[?25h"
LINE_THAT_STAYS = re.compile(r"[1-9] [a-zA-Z]+  ")


def on_a_terminal(command: list[str]) -> str:
    """What a command writes to a terminal, with everything that moves the cursor."""
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (40, COLUMNS))
    environment = {**os.environ, "TERM": "xterm-256color", "TZ": "UTC"}
    written = b""
    with subprocess.Popen(command, env=environment, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        try:
            while data := os.read(master, 1 << 16):
                written += data
        except OSError:  # the other end is closed
            pass
    os.close(master)
    assert process.returncode == 0, written.decode()[-2000:]
    return written.decode()


def end_of_run(written: str) -> str:
    """What is left on the screen: the lines above the view that is drawn again and again, and what follows it."""
    moving, _, end = written.rpartition(CURSOR_SHOWN)
    last_written = [next(filter(None, reversed(CONTROL.split(line))), "") for line in moving.split("\n")]
    steps = [line for line in last_written if LINE_THAT_STAYS.match(line)]
    results = [RESTYLED.sub("", line.rstrip()) for line in CONTROL.sub("", end).splitlines()]
    return "\n".join([*steps, *results]) + "\n"


def capture_run() -> None:
    RUN.source.write_text(end_of_run(on_a_terminal([sys.executable, "-m", "examples.demo"])), encoding="utf-8")


def capture_history() -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    with (
        tempfile.TemporaryDirectory() as directory,
        Broker({"group.initial.rebalance.delay.ms": 500}) as broker,
        GroupMembers(
            broker.bootstrap,
            *("orders", "kitchen", "confluent"),
            partitions=4,
            directory=Path(directory),
            session_timeout_ms="6000",
        ) as members,
    ):
        broker.create_topic("orders", partitions=4)
        anna = members.start("anna")
        ben = members.start("ben")
        members.wait_settled("anna", "ben")
        ben.kill()
        members.wait_settled("anna")
        members.start("ben again", client_id="ben")
        members.wait_settled("anna", "ben again")
        anna.close()
        members.wait_settled("ben again")
        printed = run_line(HISTORY_COMMAND, broker.bootstrap).replace(broker.bootstrap, "127.0.0.1:9092")
        record = broker.records("__barnabas_group_history")[-1]
    HISTORY.source.write_text(f"$ {HISTORY_COMMAND}\n{printed}", encoding="utf-8")
    HISTORY_RECORD.write_bytes(record.value + b"\n")


if __name__ == "__main__":
    {"run": capture_run, "history": capture_history}[sys.argv[1]]()
