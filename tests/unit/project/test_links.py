"""Every relative link in a Markdown page leads to a file of this repository, and its anchor to a heading there.

Headings have the anchors that GitHub gives them. Links to other sites are not followed: tests need no network.
"""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    page for folder in (".", "docs/**", "deploy/**", "benchmarks/**") for page in sorted(ROOT.glob(f"{folder}/*.md"))
]
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
HTML_LINK = re.compile(r'\s(?:href|src)="([^"]*)"')
NOT_IN_ANCHORS = re.compile(r"[^\w\- ]")


def tokens(text: str) -> list[Token]:
    blocks = MarkdownIt("commonmark").enable("table").parse(text)
    return [token for block in blocks for token in (block, *(block.children or ()))]


def links(text: str) -> list[str]:
    """Where the links and pictures of a page lead."""
    found = []
    for token in tokens(text):
        if token.type in ("link_open", "image"):
            found.append(str(token.attrs["href" if token.type == "link_open" else "src"]))
        elif token.type in ("html_inline", "html_block"):
            found += HTML_LINK.findall(token.content)
    return found


def anchors(text: str) -> set[str]:
    """Those of the headings; a second heading of the same name gets a number."""
    found: set[str] = set()
    blocks = MarkdownIt("commonmark").enable("table").parse(text)
    for opening, heading in pairwise(blocks):
        if opening.type != "heading_open":
            continue
        shown = "".join(token.content for token in heading.children or () if token.type in ("text", "code_inline"))
        anchor = NOT_IN_ANCHORS.sub("", shown.lower()).replace(" ", "-")
        number = next(number for number in range(len(found) + 1) if numbered(anchor, number) not in found)
        found.add(numbered(anchor, number))
    return found


def numbered(anchor: str, number: int) -> str:
    return f"{anchor}-{number}" if number else anchor


@cache
def anchors_of(page: Path) -> set[str]:
    return anchors(page.read_text(encoding="utf-8"))


def broken_links(page: Path, text: str) -> list[str]:
    """The links that lead nowhere, if this is the text of the page."""
    return [link for link in links(text) if not ELSEWHERE.match(link) and not leads_somewhere(page, text, link)]


def leads_somewhere(page: Path, text: str, link: str) -> bool:
    path, _, anchor = unquote(link).partition("#")
    if not path:
        return anchor in anchors(text)
    target = (page.parent / path).resolve()
    if path.startswith("/") or not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors_of(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


def test_pages_have_links() -> None:
    assert sum(len(links(page.read_text(encoding="utf-8"))) for page in PAGES) > 100


@pytest.mark.parametrize(
    "link",
    [
        "nobody.md",
        "groups.md#nobody",
        "#nobody",
        "/docs/groups.md",
        "../../elsewhere.md",
        "../docs/nobody.svg",
        "pipeline.svg#nobody",
        "../deploy#nobody",
    ],
)
@pytest.mark.parametrize(
    "form", ["See [it]({}).", "![it]({})", '<a href="{}">it</a>', "[it]\n\n[it]: {}", "|a|\n|-|\n|[it]({})|"]
)
def test_link_to_nowhere_is_found(link: str, form: str) -> None:
    assert broken_links(ROOT / "docs" / "page.md", form.format(link)) == [link]


@pytest.mark.parametrize(
    "link", ["groups.md", "groups.md#lag", "#it", "../deploy", "pipeline.svg", "https://kafka.apache.org/nobody#nobody"]
)
def test_link_to_what_exists_is_none(link: str) -> None:
    assert broken_links(ROOT / "docs" / "page.md", f"# It\n\nSee [it]({link}).") == []


def test_link_in_code_is_no_link() -> None:
    assert links("`[it](nobody.md)`\n\n```\n[it](nobody.md)\n```\n") == []


def test_headings_have_the_anchors_that_github_gives_them() -> None:
    page = "# `barnabas group list`\n\n## In-sync replicas (ISR)\n\n## Why?\n\n## Why\n\n### A & B: *so*_me\n"

    assert anchors(page) == {"barnabas-group-list", "in-sync-replicas-isr", "why", "why-1", "a--b-so_me"}
