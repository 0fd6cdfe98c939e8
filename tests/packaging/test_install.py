"""The source package and the wheel: what is in them, and that they install, with every module compiled.

The usual run builds both with this Python and installs the source package on one other; `BARNABAS_LONG_TESTS=1` does
it on every Python at hand (`BARNABAS_PYTHONS` names further ones), with all dependencies.
"""

import errno
import os
import pty
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.cli.compiled import MODULES
from tests.support.pythons import Environment, environment_without_sources, has_compiler, pythons_at_hand

ROOT = Path(__file__).parents[2]
HERE = sys.version_info[:2]
IS_LONG = "BARNABAS_LONG_TESTS" in os.environ
BUILD_REQUIREMENTS = ("setuptools>=77", "Cython>=3.1,<4")
TOP_FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt")
QUICK = {} if IS_LONG else {"CFLAGS": "-O0"}
MISSING = "from barnabas.cli.compiled import missing_modules; print(dict(missing_modules()))"
SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"

pytestmark = [
    pytest.mark.skipif(not has_compiler(), reason="there is no C compiler"),
    pytest.mark.timeout(1800 if IS_LONG else 300),
]


@dataclass(frozen=True)
class Packages:
    """What was built with this Python, and the environment in which it was."""

    environment: Environment
    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment.make(Path(sys.executable), tmp_path_factory.mktemp("builder"))
    try:
        environment.pip("install", "--quiet", "-c", ROOT / "constraints.txt", *BUILD_REQUIREMENTS)
    except AssertionError as error:
        pytest.skip(f"no package registry: {error}")
    return environment


@pytest.fixture(scope="module")
def packages(builder: Environment, tmp_path_factory: pytest.TempPathFactory) -> Packages:
    tree = tmp_path_factory.mktemp("tree")
    built = tmp_path_factory.mktemp("built")
    for name in TOP_FILES:
        shutil.copy(ROOT / name, tree)
    leftovers = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=leftovers)
    (tree / "src/barnabas/records/_kernel.c").write_text("#error left behind by an older build\n")
    builder.run("-c", SDIST, built, cwd=tree)
    (sdist,) = built.glob("*.tar.gz")
    builder.pip("wheel", "--quiet", "--no-cache-dir", "--no-deps", "--no-build-isolation", "-w", built, sdist, **QUICK)
    (wheel,) = built.glob("*.whl")
    return Packages(builder, sdist, wheel)


def _sources(*suffixes: str) -> set[str]:
    return {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*")
        if path.suffix in suffixes and "egg-info" not in str(path)
    }


def _suffixes(names: Sequence[str]) -> set[str]:
    return {Path(name).suffix for name in names if not name.endswith("/")}


def test_every_compiled_module_is_known_by_name() -> None:
    of_sources = {name.removesuffix(".pyx").replace("/", ".") for name in _sources(".pyx")}
    assert of_sources == set(MODULES)


def test_names_in_c_headers_have_our_prefix() -> None:
    """CPython's own headers declare names such as `write_varint`; which ones, differs from version to version."""
    for path in ROOT.glob("src/barnabas/*/*.h"):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        names = set(re.findall(r"^#define (\w+)", text, re.MULTILINE))
        names |= set(re.findall(r"^(?:struct|enum|union) (\w+) \{", text, re.MULTILINE))
        names |= set(re.findall(r"^(?:__attribute__.*?\)\)\) )?static [^;={]*?\b(\w+)\)?[(\[]", text, re.MULTILINE))
        for constants in re.findall(r"^enum \w+ \{(.*?)\}", text, re.MULTILINE | re.DOTALL):
            names |= set(re.findall(r"\b[A-Z]\w+", constants))
        assert len(names) > 5
        assert {name for name in names if not name.startswith(("bk_", "BK_", "BARNABAS_"))} == set(), path.name


def test_source_package_carries_every_source_and_nothing_that_was_built(packages: Packages) -> None:
    with tarfile.open(packages.sdist) as archive:
        names = [name.partition("/src/")[2] for name in archive.getnames() if "/src/" in name]
    assert _sources(".py", ".pyx", ".pxi", ".h", ".pyi", ".typed") <= set(names)
    assert _suffixes(names) & {".c", ".so", ".pyc"} == set()


def test_wheel_carries_python_types_and_compiled_modules_alone(packages: Packages) -> None:
    with zipfile.ZipFile(packages.wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert _suffixes(names) == {".py", ".pyi", ".so", ".typed"}
    assert _sources(".py", ".pyi", ".typed") == {name for name in names if not name.endswith(".so")}
    compiled = {name.partition(".")[0].replace("/", ".") for name in names if name.endswith(".so")}
    assert compiled == set(MODULES)


def test_wheel_installs_with_its_dependencies_and_every_module_compiled(packages: Packages) -> None:
    environment = packages.environment
    environment.pip("install", "--quiet", "-c", ROOT / "constraints.txt", packages.wheel)
    assert environment.run("-c", MISSING).strip() == "{}"
    assert "(compiled, Python 3." in environment.run("-m", "barnabas.cli.main", "--version")


@pytest.mark.parametrize("version", [(3, minor) for minor in range(11, 16) if (3, minor) != HERE], ids=str)
def test_source_package_installs_on_another_python_with_every_module_compiled(
    request: pytest.FixtureRequest, version: tuple[int, int], tmp_path: Path
) -> None:
    others = [one for one in pythons_at_hand() if one != HERE]
    if version not in others:
        pytest.skip("this Python is not at hand; BARNABAS_PYTHONS can name it")
    if not IS_LONG and version != others[-1]:
        pytest.skip("one other Python is enough; BARNABAS_LONG_TESTS=1 takes them all")
    packages: Packages = request.getfixturevalue("packages")
    environment = Environment.make(pythons_at_hand()[version], tmp_path / "environment")
    with_dependencies = ["-c", ROOT / "constraints.txt"] if IS_LONG else ["--no-deps"]
    environment.pip("install", "--quiet", "--no-cache-dir", *with_dependencies, packages.sdist, **QUICK)

    assert environment.run("-c", MISSING).strip() == "{}"
    if IS_LONG:
        environment.pip("wheel", "--quiet", "--no-cache-dir", "--no-deps", "-w", tmp_path, packages.sdist)
        (wheel,) = tmp_path.glob("*.whl")
        environment.pip("install", "--quiet", "--force-reinstall", "--no-deps", wheel)
        assert "(compiled, Python 3." in environment.run("-m", "barnabas.cli.main", "--version")


def _shown_on_a_terminal(command: Sequence[str | Path], environment: dict[str, str]) -> str:
    """What a person sees who runs it in a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        try:
            os.execve(command[0], [str(word) for word in command], environment)
        finally:
            os._exit(127)
    shown = b""
    with open(terminal, "rb", buffering=0) as file:
        try:
            while data := file.read(65_536):
                shown += data
        except OSError as error:
            if error.errno != errno.EIO:  # Linux's end of a terminal that nobody has open
                raise
    _, status = os.waitpid(child, 0)
    text = shown.decode(errors="replace")
    assert os.waitstatus_to_exitcode(status) == 0, text
    return text


def test_install_without_a_compiler_works_and_says_so_on_the_terminal(packages: Packages, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    pip = [packages.environment.python, "-m", "pip", "install", "--no-cache-dir", "--no-deps", "--no-build-isolation"]
    shown = _shown_on_a_terminal(
        [*pip, "--target", target, packages.sdist], environment_without_sources({"CC": "/bin/false"})
    )
    assert "Barnabas is installed WITHOUT its compiled modules" in shown

    version = [sys.executable, "-m", "barnabas.cli.main", "--version"]
    printed = subprocess.run(
        version,
        env=environment_without_sources({"PYTHONPATH": str(target)}),
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "(pure Python, " in printed.splitlines()[0]
    assert all(f"not compiled: {name}: " in printed for name in MODULES)


@pytest.mark.skipif(not IS_LONG, reason="set BARNABAS_LONG_TESTS=1 to run it")
def test_build_that_requires_compiled_modules_fails_without_a_compiler(packages: Packages, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"/bin/false"):
        packages.environment.pip(
            *("wheel", "--no-cache-dir", "--no-deps", "--no-build-isolation", "-w", tmp_path, packages.sdist),
            CC="/bin/false",
            BARNABAS_REQUIRE_COMPILED="1",
        )
