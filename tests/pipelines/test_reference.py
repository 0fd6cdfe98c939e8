"""The generated parts of the docs are those that the tables give, and the schema says the same as the reader."""

import json
from pathlib import Path

from barnabas.pipelines.definitions import PIPELINE, SINK, SOURCE, STEP
from barnabas.pipelines.reference import PAGE_FILE, SCHEMA_FILE, json_schema, page_text, schema_text

DOCS = Path(__file__).parents[2] / "docs"
HOW = "run `python -m barnabas.pipelines.reference docs`"


def test_schema_file_is_what_the_tables_give() -> None:
    assert (DOCS / SCHEMA_FILE).read_text(encoding="utf-8") == schema_text(), HOW


def test_reference_on_the_page_is_what_the_tables_give() -> None:
    page = (DOCS / PAGE_FILE).read_text(encoding="utf-8")
    assert page == page_text(page), HOW


def test_schema_has_every_key_and_refuses_others() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert set(schema["properties"]) == {field.name for field in PIPELINE.fields}
    for key, section in (("sources", SOURCE), ("steps", STEP), ("sinks", SINK)):
        entry = schema["properties"][key]["additionalProperties"]
        assert set(entry["properties"]) == {field.name for field in section.fields}
        assert entry["additionalProperties"] is False
