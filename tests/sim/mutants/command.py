"""Finds for each mutant a seed that catches it, and records it in `caught.json`."""

import argparse
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from tests.sim.mutants.mutants import MUTANTS
from tests.sim.mutants.record import Caught, read_record, write_record
from tests.sim.mutants.search import Found, find_seed, order_of_seeds


def main() -> int:
    options = _parsed()
    names = options.only or [name for name, mutant in MUTANTS.items() if mutant.page is None]
    if unknown := [name for name in names if name not in MUTANTS]:
        sys.exit(f"no such mutant: {', '.join(unknown)}; known are {', '.join(MUTANTS)}")
    caught = {name: one for name, one in read_record().items() if name in MUTANTS}
    if options.missing:
        names = [name for name in names if name not in caught]
    found: list[Found] = []
    for number, one in enumerate(_search(names, options.seeds, options.jobs, caught), 1):
        found.append(one)
        print(f"{number}/{len(names)} {_line(one)}", flush=True)
        if one.seed is not None:
            caught[one.mutant] = Caught(one.seed, one.checker)
        else:
            caught.pop(one.mutant, None)
            for other in one.others[:5]:
                print(f"      seed {other}", flush=True)
        write_record(caught)
    _print_table(found)
    return 1 if any(one.seed is None for one in found) else 0


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="this mutant; may be given several times")
    parser.add_argument("--missing", action="store_true", help="only those without a recorded seed")
    parser.add_argument("--seeds", type=int, default=500, help="try seeds below this (500)")
    parser.add_argument("--jobs", type=int, default=1, help="mutants that are searched for at a time (1)")
    return parser.parse_args()


def _search(names: Iterable[str], seeds: int, jobs: int, caught: dict[str, Caught]) -> Iterator[Found]:
    if jobs == 1:
        _be_quiet()
        for name in names:
            yield _find(name, seeds, _best_seeds(name, caught, seeds))
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_be_quiet) as pool:
        running = [pool.submit(_find, name, seeds, _best_seeds(name, caught, seeds)) for name in names]
        for one in as_completed(running):
            yield one.result()


def _find(name: str, seeds: int, known: list[int]) -> Found:
    return find_seed(MUTANTS[name], order_of_seeds(MUTANTS[name], seeds, known))


def _best_seeds(name: str, caught: dict[str, Caught], seeds: int) -> list[int]:
    """The one that has caught this mutant, then those that have caught others, the most successful first."""
    brokers = MUTANTS[name].brokers
    counts = Counter(one.seed for other, one in caught.items() if MUTANTS[other].brokers == brokers)
    own = [caught[name].seed] if name in caught else []
    return [seed for seed in dict.fromkeys([*own, *(seed for seed, _ in counts.most_common())]) if seed < seeds]


def _be_quiet() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def _line(one: Found) -> str:
    if one.seed is None:
        return f"{one.mutant}: not caught by {one.tried} seeds, {one.seconds:.0f} s"
    return f"{one.mutant}: seed {one.seed}, {one.checker} ({one.tried} tried, {one.seconds:.1f} s): {one.problem[:160]}"


def _print_table(found: list[Found]) -> None:
    width = max((len(one.mutant) for one in found), default=0)
    print(f"\n{'mutant':<{width}}  {'seed':>5}  {'seconds':>7}  checker")
    for one in sorted(found, key=lambda one: one.mutant):
        seed = "-" if one.seed is None else str(one.seed)
        print(f"{one.mutant:<{width}}  {seed:>5}  {one.seconds:>7.1f}  {one.checker or 'not caught'}")
