"""docs/groups.md stays true: its examples give what it says, and what it draws and tells is made by the code.

After a change, `python -m tests.unit.cli.test_group_docs` writes the page anew; read the difference before you keep it.
"""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

from barnabas.cli.group.group_history import say_history
from barnabas.groups.effects import Cause, MemberRef, Outcome, Reason, RebalanceCompleted
from barnabas.groups.history import GroupHistory
from barnabas.groups.transitions import mermaid
from barnabas.testing import Broker
from tests.unit.project.test_docs_commands import CONSOLE, fill_examples, without_what_changes

PAGE = Path(__file__).resolve().parents[3] / "docs" / "groups.md"
DRAWING = re.compile(r"(?<=```mermaid\n).*?(?=```)", re.DOTALL)
STORY = re.compile(r"(?<=```text\n).*?(?=```)", re.DOTALL)
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
BEHIND = re.compile(r"\d[\d.]* (ms|s|min)( \d+ s)?")

NOON_MS = 1_794_744_000_000
SLOW = MemberRef("worker-1-0b17e2f4-5149-4081", None, "worker-1", "/10.0.0.7")
SILENT = MemberRef("worker-2-9c3d55aa-588d-4d2e", None, "worker-2", "/10.0.0.8")


def told_story() -> str:
    """What `group describe --history` prints of a worker that was too slow, and of one that fell silent."""
    expired = Cause(Reason.MEMBER_LEFT, NOON_MS, SLOW, "consumer poll timeout has expired.")
    missed_at_ms = NOON_MS + 1_800_000
    missed = Cause(Reason.HEARTBEAT_MISSED, missed_at_ms, SILENT, since_ms=missed_at_ms - 45_000)
    history = GroupHistory("billing").with_entry(rebalance(NOON_MS, 7, 2_140, (expired,), 3, 2))
    history = history.with_entry(rebalance(missed_at_ms, 9, 310, (missed,), 3, 2))
    printed = io.StringIO()
    with redirect_stdout(printed):
        say_history(history)
    return printed.getvalue()


def rebalance(
    started_ms: int, generation: int, joining_ms: int, causes: tuple[Cause, ...], before: int, after: int
) -> RebalanceCompleted:
    return RebalanceCompleted(
        group_id="billing",
        started_at_ms=started_ms,
        join_ended_at_ms=started_ms + joining_ms,
        completed_at_ms=started_ms + joining_ms + 12,
        outcome=Outcome.STABLE,
        generation_before=generation,
        generation_after=generation + 1,
        causes=causes,
        causes_left_out=0,
        members_before=before,
        members_after=after,
        joined=(),
        left=(),
        last_joined=MemberRef("worker-3-41d0a8be-0000-4e26", None, "worker-3", "/10.0.0.9"),
        last_synced=None,
        leader=None,
        protocol="range",
    )


def made_anew(page: str, bootstrap: str) -> str:
    filled = fill_examples(page, bootstrap)
    filled = DRAWING.sub(lambda _: f"{mermaid()}\n", filled)
    return STORY.sub(lambda _: told_story(), filled)


def comparable(page: str) -> str:
    """The story's times are those of this machine's zone; how far a group is behind differs from run to run."""
    page = without_what_changes(TIME.sub("TIME", page))
    return CONSOLE.sub(lambda block: BEHIND.sub("AGE", block.group()), page)


def test_groups_page_gives_what_the_code_does() -> None:
    page = PAGE.read_text()
    with Broker() as broker:
        anew = made_anew(page, broker.bootstrap)

    assert len(CONSOLE.findall(page)) == 3
    assert len(DRAWING.findall(page)) == len(STORY.findall(page)) == 1
    assert comparable(anew) == comparable(page)


if __name__ == "__main__":
    with Broker() as running:
        PAGE.write_text(made_anew(PAGE.read_text(), running.bootstrap).replace(running.bootstrap, "127.0.0.1:9092"))
