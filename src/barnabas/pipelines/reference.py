"""Makes the JSON Schema for editors and the reference of `docs/pipelines.md` out of `barnabas.pipelines.definitions`.

`python -m barnabas.pipelines.reference DOCS` rewrites `DOCS/pipeline.schema.json` and the part of `DOCS/pipelines.md`
between its two marks. A test holds them to the tables.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from barnabas.pipelines.definitions import PIPELINE, Field, Kind, Section

BEGIN: Final = "<!-- reference: written by `python -m barnabas.pipelines.reference docs` -->"
END: Final = "<!-- end of the reference -->"
SCHEMA_FILE: Final = "pipeline.schema.json"
PAGE_FILE: Final = "pipelines.md"

_SCALAR: Final = {"type": ["string", "number", "boolean"]}
_TYPES: Final[dict[Kind, dict[str, Any]]] = {
    Kind.TEXT: {"type": "string", "minLength": 1},
    Kind.NAME: {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_-]*$"},
    Kind.INTEGER: {"type": "integer", "minimum": 1},
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.DURATION: {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*[A-Za-z]+\s*$"},
    Kind.SIZE: {"type": ["string", "integer"], "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*[A-Za-z]*\s*$"},
    Kind.SETTINGS: {"type": "object", "additionalProperties": _SCALAR},
}


def json_schema() -> dict[str, Any]:
    """Draft 2020-12, which editors with YAML support read."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A pipeline of Barnabas",
        **_section_schema(PIPELINE),
    }


def _section_schema(section: Section) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "description": section.doc,
        "additionalProperties": False,
        "properties": {field.name: _field_schema(field) for field in section.fields},
    }
    required = [field.name for field in section.fields if field.is_required]
    if required:
        schema["required"] = required
    if section.one_of:
        schema["allOf"] = [{"oneOf": [{"required": [name]} for name in group]} for group in section.one_of]
    return schema


def _field_schema(field: Field) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": field.doc}
    if field.kind is Kind.SECTIONS:
        assert field.section is not None, "a key with entries knows their section"
        return schema | {"type": "object", "minProperties": 1, "additionalProperties": _section_schema(field.section)}
    member = (
        {"type": "string", "enum": list(field.choices)} if field.choices else _TYPES.get(field.kind, _TYPES[Kind.TEXT])
    )
    if field.kind is Kind.TEXTS:
        schema["oneOf"] = [member, {"type": "array", "items": member}]
    else:
        schema |= member
    if field.default:
        schema["default"] = field.default == "true" if field.kind is Kind.BOOLEAN else _default(field)
    return schema


def _default(field: Field) -> str | int:
    return int(field.default) if field.kind is Kind.INTEGER else field.default


def reference() -> str:
    """One table for each kind of entry, as Markdown."""
    sections = [PIPELINE, *(field.section for field in PIPELINE.fields if field.section is not None)]
    return "\n".join(_section_text(section) for section in sections)


def _section_text(section: Section) -> str:
    title = "The file" if section is PIPELINE else f"A {section.noun}"
    lines = [f"### {title}", "", section.doc, ""]
    for group in section.one_of:
        lines += [f"Exactly one of {', '.join(f'`{name}`' for name in group)} must be given.", ""]
    lines += ["| key | value | default | meaning |", "|---|---|---|---|"]
    lines += [_row(field) for field in section.fields]
    return "\n".join([*lines, ""])


def _row(field: Field) -> str:
    value = _alternatives(field.choices) if field.choices else field.kind.value
    default = "*must be given*" if field.is_required else f"`{field.default}`" if field.default else ""
    cells = (f"`{field.name}`", value, default, field.doc)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _alternatives(choices: Iterable[str]) -> str:
    return ", ".join(f"`{choice}`" for choice in choices)


def schema_text() -> str:
    return json.dumps(json_schema(), indent=2) + "\n"


def page_text(page: str) -> str:
    """The page with a new reference between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"the page has no {BEGIN}"
    assert end, f"the page has no {END}"
    return f"{before}{BEGIN}\n\n{reference()}\n{END}{after}"


def main(docs: Path) -> None:
    (docs / SCHEMA_FILE).write_text(schema_text(), encoding="utf-8")
    page = docs / PAGE_FILE
    page.write_text(page_text(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
