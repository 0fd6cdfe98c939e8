"""`python -m barnabas.sim`: histories of many seeds, or one of them again with its story.

| exit status | |
|---|---|
| 0 | nothing was found |
| 1 | a history has problems, in this call or in an earlier one that the state file keeps |
| 2 | the command line, the plan or the state file cannot be used |
| 130 | Ctrl-C; the next call goes on |

Results go to standard output, progress to standard error.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.base.clock import Clock, SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.cli.output import complain, plural, remark, say, say_json
from barnabas.sim.histories.examination import Examined, examine
from barnabas.sim.histories.plan import Plan, make_plan
from barnabas.sim.histories.plan_file import load_plan, save_plan
from barnabas.sim.runs.ledger import Ledger, sources_digest
from barnabas.sim.runs.log_capture import silent_logs
from barnabas.sim.runs.progress import series_progress, shrinking_progress
from barnabas.sim.runs.replay import COMMAND, plan_command, replay, say_story, seed_command, story_json
from barnabas.sim.runs.series import Tally, known_results, parse_seeds, run_series
from barnabas.sim.runs.shrinking import RUNS_MAX, shrink
from barnabas.sim.runs.verdicts import PROCESS, Examine, Verdict, judge_seed
from barnabas.sim.runs.workers import Workers

FOUND: Final = 1
UNUSABLE: Final = 2
INTERRUPTED: Final = 130
STATE: Final = Path("build/sim/state.jsonl")
SEEDS: Final = "200"
SHRUNK_MAX: Final = 3
"""Of a series with many findings: one for each checker, and no more than these."""
_PROBLEMS_SHOWN: Final = 3


def run(arguments: list[str], *, examine: Examine = examine) -> int:
    """Runs one command line; returns its exit status. `examine` runs a plan and asks the checkers."""
    app = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
    app.command()(sim)
    try:
        result = typer.main.get_command(app)(arguments, prog_name=COMMAND, standalone_mode=False, obj=examine)
    except typer.TyperException as error:
        complain(error.format_message())
        return UNUSABLE
    except BarnabasError as error:
        complain(str(error))
        return UNUSABLE
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def sim(
    context: typer.Context,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N|A-B", help=f"How many seeds, or which; {SEEDS}, or with --minutes no limit."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Run this seed alone, and print its story with all log lines.", min=0)
    ] = None,
    plan: Annotated[Path | None, typer.Option(metavar="FILE", help="Run a saved plan, as --seed does.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Begin no further history after this time.", min=0.0)] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes; one for each CPU by default.", min=1)] = None,
    brokers: Annotated[int, typer.Option(help="Brokers in each history.", min=1)] = 1,
    state: Annotated[
        Path, typer.Option(metavar="FILE", help="Where results are kept, so that a second call goes on.")
    ] = STATE,
    across_changes: Annotated[
        bool, typer.Option("--across-changes", help="Go on even though the sources have changed since.")
    ] = False,
    shrinks: Annotated[
        bool | None,
        typer.Option("--shrink/--no-shrink", help="Shorten failing plans; of --seed and --plan only when given."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the plan, the shortened one where there is one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
) -> int:
    """Runs the broker and its clients through simulated histories, and reports every broken rule."""
    clock = SystemClock()
    examine: Examine = context.obj
    if seed is None and plan is None:
        chosen = None if seeds is None and minutes is not None else parse_seeds(seeds or SEEDS)
        ledger = Ledger(state, sources_digest(), brokers, is_any_source=across_changes)
        if ledger.done:
            remark(f"{plural(len(ledger.done), 'seed')} done before ({state})")
        job = partial(judge_seed, brokers=brokers, examine=examine)
        tally = _run_many(chosen, ledger, Workers(job, jobs or os.cpu_count() or 1, clock), clock, minutes, as_json)
        if shrinks is not False:
            for verdict in _worth_shrinking(tally.findings):
                target = save or state.parent / f"seed-{verdict.seed}.json"
                _shrink_and_tell(make_plan(verdict.seed, brokers=brokers), examine, clock, target, as_json)
        _say_tally(tally, as_json)
        return FOUND if tally.all_findings else 0
    if len([one for one in (seed, plan, seeds, minutes) if one is not None]) > 1:
        raise typer.BadParameter("--seed and --plan run one history: give one of them, without --seeds and --minutes")
    one = load_plan(plan) if plan is not None else make_plan(seed or 0, brokers=brokers)
    if shrinks:
        return _shrink_and_tell(one, examine, clock, save or state.parent / f"seed-{one.seed}.json", as_json)
    if save is not None:
        save_plan(one, save)
    examined, log_lines = replay(one, examine)
    if as_json:
        say_json(story_json(examined, log_lines))
    else:
        say_story(examined, log_lines, plan_command(plan) if plan is not None else seed_command(one))
    return FOUND if examined.problems else 0


# Many seeds


def _run_many(
    seeds: range | None, ledger: Ledger, workers: Workers, clock: Clock, minutes: float | None, as_json: bool
) -> Tally:
    total = None if seeds is None else sum(seed not in ledger.done for seed in seeds)
    if total == 0:
        return known_results(seeds, ledger)
    tally = Tally()
    with ledger, workers, series_progress(total, clock, is_shown=not as_json) as show:

        def note(so_far: Tally, verdict: Verdict | None) -> None:
            nonlocal tally
            tally = so_far
            show(so_far)
            if verdict is not None and verdict.problems:
                _say_finding(verdict, as_json)

        seconds_max = None if minutes is None else minutes * 60
        try:
            return run_series(seeds, ledger, workers, clock, seconds_max=seconds_max, on_verdict=note)
        except KeyboardInterrupt:
            _say_tally(tally, as_json)
            raise


def _say_finding(verdict: Verdict, as_json: bool) -> None:
    if as_json:
        say_json(verdict.to_json())
        return
    say(f"seed {verdict.seed}: {plural(len(verdict.problems), 'problem')}")
    for problem in verdict.problems[:_PROBLEMS_SHOWN]:
        say(f"  {problem}")
    if len(verdict.problems) > _PROBLEMS_SHOWN:
        say(f"  and {len(verdict.problems) - _PROBLEMS_SHOWN} more")


def _say_tally(tally: Tally, as_json: bool) -> None:
    found = tally.all_findings
    if as_json:
        say_json(
            {
                "histories": tally.histories,
                "operations": tally.operations,
                "faults": tally.faults,
                "virtual_seconds": round(tally.virtual_seconds, 3),
                "seconds": round(tally.seconds, 3),
                "done_before": len(tally.earlier),
                "failed_seeds": [verdict.seed for verdict in found],
            }
        )
        return
    say(tally.describe())
    if tally.earlier:
        failed = sum(bool(verdict.problems) for verdict in tally.earlier)
        say(f"{plural(len(tally.earlier), 'seed')} done before, {failed or 'none'} of them with findings")
    if found:
        say(f"failed seeds: {', '.join(str(verdict.seed) for verdict in found)}")
        say(f"replay: {COMMAND} --seed {found[0].seed}")


def _worth_shrinking(findings: Sequence[Verdict]) -> Iterator[Verdict]:
    """The first of each checker. What ended its process would end this one."""
    seen: set[str] = {PROCESS}
    for verdict in findings:
        checker = verdict.problems[0].checker
        if checker not in seen and len(seen) <= SHRUNK_MAX:
            seen.add(checker)
            yield verdict


# One plan


def _shrink_and_tell(plan: Plan, examine: Examine, clock: Clock, target: Path, as_json: bool) -> int:
    """Saves the shortened plan, and prints its story."""
    with silent_logs():
        examined = examine(plan)
        if not examined.problems:
            if as_json:
                say_json(story_json(examined, ()))
            else:
                say(f"seed {plan.seed} does not fail when it runs alone")
            return 0
        short = _shrink(examined, examine, clock, is_shown=not as_json)
    save_plan(short.plan, target)
    if as_json:
        say_json(story_json(short, ()))
    else:
        say_story(short, (), plan_command(target))
    return FOUND


def _shrink(examined: Examined, examine: Examine, clock: Clock, *, is_shown: bool) -> Examined:
    with shrinking_progress(examined.plan.seed, RUNS_MAX, is_shown=is_shown) as show:
        shrunk = shrink(examined, examine, clock, on_run=show)
    if is_shown:
        limit = "; the limit of time or runs was reached" if shrunk.is_exhausted else ""
        remark(f"seed {examined.plan.seed}: shortened in {plural(shrunk.runs, 'run')}{limit}")
    return shrunk.examined
