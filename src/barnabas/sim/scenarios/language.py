"""Reads a scenario: one sentence a line, `#` for comments, and a first comment that says what it shows. Pure.

```
# Records that were acknowledged survive a kill of the broker.
broker 1
start broker-1
topic orders
producer p1
p1 sends a b c to orders-0
kill broker-1
start broker-1
expect orders-0 holds a b c
```

`barnabas.sim.scenarios.forms` lists the sentences. A page that cannot be read is refused as a whole, with the line and
what could have stood there: a word that is misspelt must not turn a check into nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final
from zlib import crc32

from barnabas.sim.scenarios.forms import FORMS, Form
from barnabas.sim.scenarios.slots import BROKER, CLUSTER, KINDS, NAMES, ZOOKEEPER, Item, Unfit

_NEW: Final = "new-"
_SLOT: Final = re.compile(r"\{(\w+):([\w-]+)\}")
_PLAIN: Final = ("number", "word", "text", "new-broker", "new-cluster", "new-producer", "new-reader", "new-member")
"""Kinds of which the name says less than what is open there."""
_SUGGESTIONS_MAX: Final = 3


class NotAScenario(Exception):  # noqa: N818 - named as the fact that it is
    """A line that cannot be read."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")


@dataclass(frozen=True, slots=True)
class Statement:
    line: int
    text: str
    action: str
    arguments: dict[str, object]


@dataclass(frozen=True, slots=True)
class Scenario:
    path: str
    title: str
    """The first comment."""
    seeds: range
    """It is played once with each."""
    statements: tuple[Statement, ...]


def parse(text: str, path: str) -> Scenario:
    """NotAScenario when a line is no sentence, or names what no line above has declared."""
    title = ""
    statements: list[Statement] = []
    names: dict[str, str] = {}
    sent: dict[str, int] = {}
    seed = crc32(path.rpartition("/")[2].encode())  # the same for ever, and another one for each file
    seeds = range(seed, seed + 1)
    for number, line in enumerate(text.splitlines(), 1):
        sentence, comment = _without_comment(line)
        if not title:
            if not comment or sentence:
                raise NotAScenario(path, number, "the first line must be a comment that says what the scenario shows")
            title = comment
        if not sentence:
            continue
        try:
            statement = _read(number, sentence, names)
            if statement.action == "send":
                _check_values(statement, sent)
        except Unfit as error:
            raise NotAScenario(path, number, f"{error}") from None
        if statement.action == "seeds":
            seeds = _seeds(seeds, statement.arguments)
        else:
            statements.append(statement)
    if not statements:
        raise NotAScenario(path, max(1, len(text.splitlines())), "nothing happens in it")
    return Scenario(path, title, seeds, tuple(statements))


def _without_comment(line: str) -> tuple[str, str]:
    sentence, _, comment = f" {line} ".partition(" #")
    return " ".join(sentence.split()), comment.strip(" #")


def _read(line: int, sentence: str, names: dict[str, str]) -> Statement:
    for form in FORMS:
        match = _pattern(form).fullmatch(sentence)
        if match is None:
            continue
        arguments: dict[str, object] = {}
        kinds = dict(_SLOT.findall(form.template))
        for name, found in match.groupdict().items():
            if name not in kinds:
                arguments[name] = found is not None
            elif found is not None:
                arguments[name] = _value(kinds[name], found, names)
        return Statement(line, sentence, form.action, arguments)
    raise Unfit(f"'{sentence}' is no sentence; expected {' or '.join(_suggestions(sentence))}")


def _value(kind: str, text: str, names: dict[str, str]) -> object:
    if kind.startswith(_NEW):
        kind = kind.removeprefix(_NEW)
        if kind == BROKER:
            number = KINDS["number"].read(text)
            _declare(f"{BROKER}-{number}", kind, names)
            return number
        if kind == CLUSTER:
            count = KINDS["number"].read(text)
            assert isinstance(count, int)
            _declare(ZOOKEEPER, ZOOKEEPER, names)
            for number in range(1, count + 1):
                _declare(f"{BROKER}-{number}", BROKER, names)
            return count
        _declare(text, kind, names)
        return text
    if kind not in NAMES:
        return KINDS[kind].read(text)
    if names.get(text) not in NAMES[kind]:
        known = [name for name, what in names.items() if what in NAMES[kind]]
        wanted = "broker or client" if kind in ("node", "host") else kind
        raise Unfit(f"'{text}' is no {wanted} of the lines above, which have {', '.join(known) or 'none'}")
    return text


def _declare(name: str, kind: str, names: dict[str, str]) -> None:
    if name in names:
        raise Unfit(f"there is a {names[name]} '{name}' already")
    names[name] = kind


def _seeds(seeds: range, arguments: dict[str, object]) -> range:
    """These, but with another start or another number of them."""
    first, count = arguments.get("number", seeds.start), arguments.get("count", len(seeds))
    assert isinstance(first, int)
    assert isinstance(count, int)
    return range(first, first + count)


def _check_values(statement: Statement, sent: dict[str, int]) -> None:
    """A value tells one record from all others."""
    items = statement.arguments["values"]
    assert isinstance(items, tuple)
    for item in items:
        assert isinstance(item, Item)
        if item.value is not None:
            if item.value in sent:
                raise Unfit(f"'{item.value}' is sent in line {sent[item.value]} already: values are unique")
            sent[item.value] = statement.line


# Templates


@cache
def _pattern(form: Form) -> re.Pattern[str]:
    """The template as an expression, with a group for each part that is open or optional."""
    return re.compile("".join(_expressions(form.template)))


def _expressions(template: str) -> Iterator[str]:
    for part in re.split(r"( ?\[[^\]]*\])", template):
        if "[" not in part:
            yield _words(part)
            continue
        inner = part.strip(" []")
        if _SLOT.search(inner):
            yield f"(?: {_words(inner)})?"
        else:
            yield f"(?P<{flag_name(inner)}> {re.escape(inner)})?"


def _words(text: str) -> str:
    """Literal words are escaped, open ones become named groups."""
    pieces = []
    end = 0
    for slot in _SLOT.finditer(text):
        name, kind = slot.groups()
        words = KINDS[kind].words if kind in KINDS else r"\S+"
        pieces += [re.escape(text[end : slot.start()]), f"(?P<{name}>{words})"]
        end = slot.end()
    return "".join([*pieces, re.escape(text[end:])])


def flag_name(words: str) -> str:
    """The argument's name of an optional part in which nothing is open."""
    return words.replace(" ", "_")


def usage(form: Form) -> str:
    """The sentence as people write it."""
    return _SLOT.sub(lambda slot: f"<{slot[1] if slot[2] in _PLAIN else slot[2]}>", form.template)


def _suggestions(sentence: str) -> list[str]:
    """The sentences that have most in common with what was written."""
    words = sentence.split()

    def likeness(form: Form) -> tuple[int, float]:
        literal = re.sub(r"[\[\]]", " ", _SLOT.sub("", form.template)).split()
        common = sum(1 for word in literal if word in words)
        return int(bool(literal) and literal[0] == words[0]) + 2 * common, -len(literal)

    ranked = sorted(FORMS, key=likeness, reverse=True)
    best = likeness(ranked[0])[0]
    if not best:
        return ["one of the sentences in docs/simulation.md"]
    return [f"'{usage(form)}'" for form in ranked if likeness(form)[0] == best][:_SUGGESTIONS_MAX]
