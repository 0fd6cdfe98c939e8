"""The site of `make docs`, in build/site: the Markdown pages of this repository as HTML, made by Sphinx.

The pages are those that GitHub shows, unchanged: the source directory is the repository, and README.md is the first
page. What a page cannot say for itself is here:

- `NAVIGATION` puts every page under a heading of the side bar. A page that is missing there fails the build.
- A link to a folder leads to its README.md; without one it is plain text. A link to any other file that is no page
  downloads that file.
- Mermaid drawings stay text: drawing them needs a script from the network, or Node.js at build time.

Nothing on the site is loaded from the network: the theme uses the reader's fonts, and searching needs no server.
"""

import tomllib
from pathlib import Path

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
START = "README"
NAVIGATION = {
    "Start": ["README", "docs/comparison"],
    "Concepts": ["docs/concepts", "docs/ARCHITECTURE"],
    "Guides": [
        "docs/broker",
        "docs/cluster",
        "docs/zookeeper",
        "docs/groups",
        "docs/spark",
        "docs/spark-sink",
        "docs/pipelines",
        "docs/examples/metrics",
        "docs/examples/logs",
        "docs/examples/views",
        "docs/testing",
        "docs/log-tools",
        "deploy/README",
    ],
    "Reference": ["docs/commands", "docs/settings", "docs/metrics", "docs/zookeeper-layout"],
    "Decisions": ["docs/decisions/README"],
    "Project": ["CONTRIBUTING", "docs/simulation", "docs/simulation-scenarios", "CHANGELOG", "benchmarks/README"],
}
DECISIONS = "docs/decisions/README"

project = "Barnabas"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
root_doc = START
include_patterns = ["*.md", "docs/**.md", "deploy/*.md", "benchmarks/*.md"]
exclude_patterns = [".*", "build", "src", "tests"]
extensions = ["myst_parser"]
nitpicky = True
smartquotes = False

myst_heading_anchors = 4

html_theme = "furo"
html_title = "Barnabas"
html_extra_path = ["index.html"]
html_copy_source = False
html_use_index = False
html_show_copyright = False


def add_navigation(app: Sphinx, page: str, text: list[str]) -> None:
    """The headings of the side bar below the first page, the numbered pages below the one about decisions."""
    if page == START:
        text[0] += "".join(contents(pages, f":caption: {name}", ":hidden:") for name, pages in NAVIGATION.items())
    elif page == DECISIONS:
        text[0] += contents(["0*"], ":glob:", ":maxdepth: 1")


def contents(pages: list[str], *options: str) -> str:
    names = ["self" if page == START else page if "*" in page else f"/{page}" for page in pages]
    return "\n".join(["\n\n```{toctree}", *options, "", *names, "```\n"])


def resolve_folders(app: Sphinx, page: nodes.document) -> None:
    for link in list(page.findall(pending_xref)):
        if link["reftype"] != "myst" or link["refdomain"]:
            continue
        folder = Path(app.env.relfn2path(link["reftarget"], app.env.docname)[1])
        if not folder.is_dir():
            continue
        readme = app.env.path2doc(str(folder / "README.md"))
        if readme in app.env.found_docs:
            link["refdomain"], link["reftarget"], link["reftargetid"] = "doc", readme, None
        else:
            link.replace_self(link.children)


def setup(app: Sphinx) -> None:
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", resolve_folders)
