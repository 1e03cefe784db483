"""The contracts of docs/schemas, to hold documents against."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema

_FOLDER = Path(__file__).parents[1] / "docs" / "schemas"


@cache
def schema_of(name: str) -> jsonschema.Draft202012Validator:
    """The schema of ``report``, ``stream``, ``diff``, ``line`` ..."""
    return jsonschema.Draft202012Validator(json.loads((_FOLDER / f"{name}-v1.schema.json").read_text("utf-8")))
