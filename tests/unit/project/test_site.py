"""The site of `make docs` can be built without a warning, has every page, and loads nothing from the network."""

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.unit.project.test_links import ELSEWHERE, PAGES, ROOT

for tool in ("sphinx", "myst_parser", "furo"):
    pytest.importorskip(tool, reason=f"{tool} is not installed: pip install barnabas[dev]")

LOADING = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """What a page loads, where its links lead, and the anchors it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if (tag, name) in LOADING:
                self.loaded.append(value or "")
            elif name == "href":
                self.links.append(value or "")
            elif name == "id":
                self.anchors.add(value or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it."""
    directory = tmp_path_factory.mktemp("site")
    options = ["-q", "-W", "--keep-going", "-c", ROOT / "docs" / "site", "-d", directory / "doctrees"]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ROOT, directory / "html"], capture_output=True, text=True
    )
    assert (built.returncode, built.stderr) == (0, "")
    return directory / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def broken_links(pages: dict[Path, Page]) -> Iterator[tuple[str, str]]:
    for page in pages.values():
        for link in (*page.links, *page.loaded):
            if ELSEWHERE.match(link):
                continue
            path, _, anchor = unquote(link).partition("#")
            path = path.partition("?")[0]  # a hash, so that browsers notice a change
            target = (page.path.parent / path).resolve() if path else page.path
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                yield page.path.name, link


def test_site_has_every_page(site: Path) -> None:
    expected = [site / page.relative_to(ROOT).with_suffix(".html") for page in PAGES]

    assert [page for page in [site / "index.html", *expected] if not page.exists()] == []


def test_links_of_the_site_lead_somewhere(pages: dict[Path, Page]) -> None:
    assert list(broken_links(pages)) == []


def test_site_loads_nothing_from_the_network(site: Path, pages: dict[Path, Page]) -> None:
    styles = [path.read_text(encoding="utf-8") for path in (*site.rglob("*.css"), *site.rglob("*.svg"))]

    assert [link for page in pages.values() for link in page.loaded if ELSEWHERE.match(link)] == []
    assert [style for style in styles if "@import" in style or "url(http" in style or "url(//" in style] == []
