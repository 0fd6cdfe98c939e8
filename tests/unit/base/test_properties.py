"""Java properties: what Java reads from the same text."""

import pytest

from barnabas.base.properties import InvalidProperties, parse_properties, render_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("# comment\n ! comment\n\n", {}),
        ("a=b", {"a": "b"}),
        ("a = b \n", {"a": "b "}),
        ("a:b\nc d\ne", {"a": "b", "c": "d", "e": ""}),
        ("a==b", {"a": "=b"}),
        ("a b=c", {"a": "b=c"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1,\\\n   2", {"a": "1,2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=1\\", {"a": "1"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=\\t\\n\\u0041\\q", {"a": "\t\nAq"}),
    ],
)
def test_properties_text_is_read_as_java_reads_it(text, properties) -> None:
    assert parse_properties(text) == properties


def test_unfinished_unicode_escape_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidProperties, match="line 2: "):
        parse_properties("a=b\nc=\\u00g0")


def test_rendered_properties_read_back_as_themselves() -> None:
    properties = {
        "log.dirs": "/a,/b",
        "a b": " leading",
        "c=d:e": "tab\there",
        "#f": "back\\slash",
        "g": "two\nlines",
    }
    assert parse_properties(render_properties(properties)) == properties
