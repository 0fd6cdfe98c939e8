"""`python -m barnabas.sim` with histories that take no time, and once with a real one."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from barnabas.base.clock import SystemClock
from barnabas.sim.histories.examination import Examined
from barnabas.sim.histories.plan import Plan, make_plan
from barnabas.sim.histories.plan_file import load_plan, save_plan
from barnabas.sim.runs import command
from barnabas.sim.runs.ledger import Ledger, sources_digest
from barnabas.sim.runs.series import InvalidSeeds, parse_seeds, seeds_to_run
from barnabas.sim.runs.verdicts import PROCESS, Verdict, judge_seed
from barnabas.sim.runs.workers import Workers
from tests.support.planted_histories import CHECKER, clean, dies, hangs, raises, third_fails

Call = Callable[..., tuple[int, str]]


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a command line in a directory of its own; returns its exit status and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, examine: Callable[[Plan], Examined] = clean) -> tuple[int, str]:
        status = command.run([*arguments], examine=examine)
        return status, capsys.readouterr().out

    return run


def kept_lines(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / command.STATE).read_text().splitlines()]


def test_clean_seeds_end_with_a_summary(call: Call) -> None:
    status, out = call("--seeds", "6", "--jobs", "2")

    assert status == 0
    assert out.startswith("6 histories in ")
    assert "histories/s" in out
    assert "faults/s" in out
    assert out.endswith("virtual time, nothing found\n")


def test_second_call_runs_what_the_first_did_not(call: Call, tmp_path: Path) -> None:
    call("--seeds", "3", "--jobs", "1")
    status, out = call("--seeds", "5", "--jobs", "1")

    assert status == 0
    assert out.startswith("2 histories in ")
    assert "3 seeds done before, none of them with findings" in out
    assert sorted(str(line["seed"]) for line in kept_lines(tmp_path)) == ["0", "1", "2", "3", "4"]


def test_call_with_nothing_left_to_do_runs_nothing(call: Call) -> None:
    call("--seeds", "2", "--jobs", "1")

    assert call("--seeds", "2") == (0, "no history was run\n2 seeds done before, none of them with findings\n")


def test_finding_is_told_shrunk_and_saved(call: Call, tmp_path: Path) -> None:
    status, out = call("--seeds", "2-4", "--jobs", "1", examine=third_fails)

    assert status == command.FOUND
    assert "seed 3: 1 problem\n  planted: planted in 3\n" in out
    assert "0 operations of 0 clients, 0 faults\n" in out
    assert "PROBLEM  planted: planted in 3\nreplay: python -m barnabas.sim --plan build/sim/seed-3.json\n" in out
    assert out.endswith("failed seeds: 3\nreplay: python -m barnabas.sim --seed 3\n")
    assert load_plan(tmp_path / "build/sim/seed-3.json").operations == ()


def test_finding_of_an_earlier_call_still_counts(call: Call) -> None:
    call("--seeds", "4", "--jobs", "1", "--no-shrink", examine=third_fails)
    status, out = call("--seeds", "4")

    assert status == command.FOUND
    assert "4 seeds done before, 1 of them with findings\nfailed seeds: 3\n" in out


def test_saved_plan_is_replayed(call: Call) -> None:
    call("--seeds", "3-3", "--jobs", "1", "--save", "short.json", examine=third_fails)
    status, out = call("--plan", "short.json", examine=third_fails)

    assert status == command.FOUND
    assert out.endswith("PROBLEM  planted: planted in 3\nreplay: python -m barnabas.sim --plan short.json\n")


def test_one_seed_is_told_whole(call: Call) -> None:
    status, out = call("--seed", "8", "--save", "whole.json")

    assert status == 0
    assert out.startswith("seed 8, 1 broker")
    assert "producer-1  sent record 1 to " in out
    assert out.endswith("no problem\nreplay: python -m barnabas.sim --seed 8\n")
    assert load_plan(Path("whole.json")) == make_plan(8)


def test_one_seed_can_be_shrunk(call: Call) -> None:
    assert call("--seed", "8", "--shrink") == (0, "seed 8 does not fail when it runs alone\n")
    status, out = call("--seed", "3", "--shrink", examine=third_fails)
    assert status == command.FOUND
    assert "0 operations of 0 clients, 0 faults\n" in out


def test_json_of_a_series_is_an_object_for_each_finding_and_one_for_all(call: Call) -> None:
    status, out = call("--seeds", "4", "--jobs", "1", "--json", "--no-shrink", examine=third_fails)
    finding, summary = map(json.loads, out.splitlines())

    assert status == command.FOUND
    assert finding["seed"] == 3
    assert finding["problems"] == [[CHECKER, "planted in 3"]]
    assert (summary["histories"], summary["failed_seeds"]) == (4, [3])


def test_json_of_one_seed_has_its_story(call: Call) -> None:
    status, out = call("--seed", "3", "--json", examine=third_fails)
    told = json.loads(out)

    assert status == command.FOUND
    assert told["trace"] == "trace of 3"
    assert {line["kind"] for line in told["story"]} == {"client", "fault"}


def test_minutes_without_seeds_end_by_time(call: Call) -> None:
    status, out = call("--minutes", "0.02", "--jobs", "1")

    assert status == 0
    assert int(out.partition(" ")[0].replace(",", "")) >= 1


@pytest.mark.parametrize(
    ("examine", "message"),
    [(raises, "raised RuntimeError: the checker has a bug"), (dies, "ended its process with exit code 7")],
)
def test_history_without_a_verdict_is_a_finding(call: Call, examine: Callable[[Plan], Examined], message: str) -> None:
    status, out = call("--seeds", "1-2", "--jobs", "1", examine=examine)

    assert status == command.FOUND
    assert f"process: the history of seed 1 {message}" in out
    assert "failed seeds: 1, 2" in out


def test_history_that_does_not_end_is_ended() -> None:
    job = partial(judge_seed, brokers=1, examine=hangs)
    with Workers(job, 1, SystemClock(), seconds_max=0.2) as workers:
        workers.give(1)
        verdicts: list[Verdict] = []
        while not verdicts:
            verdicts = workers.collect(0.1)
        assert workers.has_idle

    assert [problem.checker for problem in verdicts[0].problems] == [PROCESS]
    assert "did not end within 0.2 s" in verdicts[0].problems[0].text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seeds", "few"), "'few' is neither a number of seeds nor a range"),
        (("--seeds", "9-3"), "there is no seed in '9-3'"),
        (("--seed", "1", "--seeds", "3"), "--seed and --plan run one history"),
        (("--plan", "nowhere.json"), "cannot read nowhere.json"),
        (("--state", "."), "cannot read ."),
        (("--jobs", "0"), "Invalid value for '--jobs'"),
    ],
)
def test_mistake_on_the_command_line_is_one_line(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.run([*arguments]) == command.UNUSABLE

    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_seeds_are_a_number_or_a_range() -> None:
    assert parse_seeds("200") == range(200)
    assert parse_seeds("300-399") == range(300, 400)
    with pytest.raises(InvalidSeeds):
        parse_seeds("-3")


# The state file


def test_other_sources_or_brokers_begin_anew_with_what_failed(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    with Ledger(path, "old", 1) as ledger:
        for seed in range(4):
            ledger.add(judge_seed(seed, brokers=1, examine=third_fails))

    assert sorted(Ledger(path, "old", 1).done) == [0, 1, 2, 3]
    assert Ledger(path, "old", 2).done == {}
    changed = Ledger(path, "new", 1)
    assert (changed.done, changed.failed_before) == ({}, {3})
    assert list(seeds_to_run(range(5), changed)) == [3, 0, 1, 2, 4]
    assert sorted(Ledger(path, "new", 1, is_any_source=True).done) == [0, 1, 2, 3]


def test_torn_last_line_is_skipped_and_the_next_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    verdicts = [judge_seed(seed, brokers=1, examine=third_fails) for seed in range(3, 5)]
    with Ledger(path, "a", 1) as ledger:
        ledger.add(verdicts[0])
    with path.open("a") as file:
        file.write('{"sources": "a", "se')
    with Ledger(path, "a", 1) as ledger:
        ledger.add(verdicts[1])

    found = Ledger(path, "a", 1).done

    assert sorted(found) == [3, 4]
    assert found[3].problems == verdicts[0].problems


def test_digest_of_the_sources_is_stable() -> None:
    assert sources_digest() == sources_digest()


# A real history


def test_command_runs_a_short_plan_with_the_log_of_the_broker(tmp_path: Path) -> None:
    plan = make_plan(1)
    save_plan(plan.with_parts(plan.operations[:10], []), tmp_path / "plan.json")

    done = subprocess.run(
        [sys.executable, "-m", "barnabas.sim", "--plan", "plan.json"], cwd=tmp_path, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "director    create_topic(topic=plain" in done.stdout
    assert "broker-1    INFO    created topic 'plain'" in done.stdout
    assert "producer-1  sent record" in done.stdout
    assert "at the end plain-0 holds offsets 0 to " in done.stdout
    assert done.stdout.endswith("no problem\nreplay: python -m barnabas.sim --plan plan.json\n")
