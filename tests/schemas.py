"""The contracts of docs/schemas, to hold documents against."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema

_FOLDER = Path(__file__).parents[1] / "docs" / "schemas"


@cache
def schema_of(name: str, kind: str | None = None) -> jsonschema.Draft202012Validator:
    """The schema of ``report``, ``stream``, ``diff``, ``line`` ...; of ``stream`` that of one ``kind`` of lines.

    Raises:
        KeyError: there is no such kind.
    """
    found = json.loads((_FOLDER / f"{name}-v1.schema.json").read_text("utf-8"))
    if kind is not None:
        found = {"$ref": found["discriminator"]["mapping"][kind], "$defs": found["$defs"]}
    return jsonschema.Draft202012Validator(found)
