"""Bodies and files read as prompts, and as errors."""

import json

import pytest

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import inputs
from cachedoctor.prompts.prompt import Prompt


def one(value: object) -> Prompt:
    (prompt,) = inputs.parse(json.dumps(value).encode(), "f")
    return prompt


def fails(data: bytes | object, slot: int | None = None) -> CacheDoctorError:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    with pytest.raises(CacheDoctorError) as caught:
        inputs.parse(raw, "f", slot)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message
    return caught.value
