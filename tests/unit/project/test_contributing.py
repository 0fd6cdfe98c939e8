"""The map in CONTRIBUTING.md names files that exist."""

import re

import pytest

from tests.support.kafka import PROJECT_DIRECTORY

PAGE = PROJECT_DIRECTORY / "CONTRIBUTING.md"
PATH = re.compile(r"`((?:[a-z_]+/)+(?:[a-z_*]+\.(?:py|pxi|toml))?)`")


def named_paths() -> list[str]:
    return sorted({match[1] for match in PATH.finditer(PAGE.read_text())})


def test_page_names_paths() -> None:
    assert len(named_paths()) > 30


@pytest.mark.parametrize("path", named_paths())
def test_path_on_the_page_exists(path: str) -> None:
    places = (PROJECT_DIRECTORY, PROJECT_DIRECTORY / "src" / "barnabas")
    assert any(list(place.glob(path)) for place in places), f"{PAGE.name} names {path}"
