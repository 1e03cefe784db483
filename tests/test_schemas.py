"""The schemas are those of the structs that are written, and no key is written that does not be in them."""

from __future__ import annotations

import json
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from conftest import ROOT
from scripts_here import checked

from cachedoctor.model import RequestRow, SlotReuse

SCRIPT = ROOT / "scripts" / "make-schemas"
SCHEMAS = sorted((ROOT / "docs" / "schemas").glob("*.json"))
_LOADER = SourceFileLoader("make_schemas", str(SCRIPT))
_SPEC = spec_from_file_location("make_schemas", SCRIPT, loader=_LOADER)
assert _SPEC is not None
MAKER: Any = module_from_spec(_SPEC)
_LOADER.exec_module(MAKER)
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*/report.json*"))


def test_they_are_up_to_date() -> None:
    assert checked("make-schemas") == (0, "")
    assert [path.name for path in SCHEMAS] == sorted(f"{document.name}-v1.schema.json" for document in MAKER.DOCUMENTS)


@pytest.mark.sample(3)
@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_they_are_schemas_that_speak_of_json(path: Path) -> None:
    schema = json.loads(path.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["description"]
    for name, found in schema["$defs"].items():
        assert found["description"], name
        assert set(found["required"]) <= set(found["properties"]), name
        assert "marks" not in found["properties"], name
    words = re.findall(r'"description": "(.*)"', path.read_text("utf-8"))
    assert len(words) > 10
    assert not [text for text in words if re.search(r"\bNone\b|``", text)]


def closed(name: str) -> jsonschema.Draft202012Validator:
    """The schema of a document, in which no other keys are allowed."""
    document = next(document for document in MAKER.DOCUMENTS if document.name == name)
    return jsonschema.Draft202012Validator(MAKER.schema(document, True) | {"additionalProperties": name == "stream"})


@pytest.mark.sample(1)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_key_that_is_written_is_in_the_schema(path: Path) -> None:
    validator = closed("stream" if path.suffix == ".jsonl" else "report")
    lines = path.read_text("utf-8").splitlines() if path.suffix == ".jsonl" else [path.read_text("utf-8")]
    assert lines
    for line in lines:
        validator.validate(json.loads(line))
    written = json.loads(lines[-1])
    assert not validator.is_valid(written | {"totals": written["totals"] | {"unknown_key": 1}})


def test_what_an_older_release_did_not_write_is_not_required() -> None:
    """Whatever its struct: the words of the field say it."""
    later = re.compile(r": may be missing|lack this key")
    for path in SCHEMAS:
        schema = json.loads(path.read_text("utf-8"))
        for name, found in [("", schema), *schema["$defs"].items()]:
            said = {
                field
                for field, kind in found.get("properties", {}).items()
                if later.search(kind.get("description", ""))
            }
            assert said & set(found.get("required", ())) == set(), (path.name, name)


def test_what_the_contract_says_is_narrower_than_what_is_read() -> None:
    """A number that is too small does not make a report unreadable."""
    schema = json.loads((ROOT / "docs/schemas/report-v1.schema.json").read_text("utf-8"))["$defs"]["SlotReuse"]
    assert schema["properties"]["slot"]["anyOf"][0] == {"type": "integer", "minimum": 0, "maximum": 7}
    found = msgspec.convert({"session": 0, "slot": 8, "requests": 0, "step": 1, "cells": [[3, 1]]}, SlotReuse)
    assert (found.slot, found.requests) == (8, 0)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"session": 1 << 60, "slot": 8, "requests": 0, "step": 1, "cells": []}, SlotReuse)


def test_a_column_of_requests_is_added_in_one_place() -> None:
    schema = json.loads((ROOT / "docs/schemas/report-v1.schema.json").read_text("utf-8"))["$defs"]["RequestRow"]
    assert list(schema["properties"]) == list(RequestRow.__struct_fields__)
