"""`caught.json`: for each mutant the seed whose history catches it, and the checker that does."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PATH: Final = Path(__file__).with_name("caught.json")


@dataclass(frozen=True, slots=True)
class Caught:
    seed: int
    checker: str


def read_record(path: Path = PATH) -> dict[str, Caught]:
    if not path.exists():
        return {}
    return {name: Caught(**found) for name, found in json.loads(path.read_text()).items()}


def write_record(caught: Mapping[str, Caught], path: Path = PATH) -> None:
    content = {name: {"seed": one.seed, "checker": one.checker} for name, one in sorted(caught.items())}
    path.write_text(json.dumps(content, indent=2) + "\n")
