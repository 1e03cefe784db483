"""The tokenizer in a file, by what the file is. Runs in the child process (``confined_worker``)."""

from __future__ import annotations

from pathlib import Path

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.regular_files import open_file
from cachedoctor.prompts.tokenizers.bpe import Pipeline

_HINT = "give a tokenizer.json, a .gguf, or http://host:port of a running llama-server"


def from_path(name: str) -> Pipeline:
    """Load a ``tokenizer.json`` or the vocabulary of a ``.gguf``; a directory stands for the ``tokenizer.json`` in it.

    Raises:
        CacheDoctorError: it cannot be used, with a hint.
    """
    path = Path(name)
    path = path / "tokenizer.json" if path.is_dir() else path
    try:
        with open_file(path, _HINT) as file:
            magic = file.read(4)
    except (OSError, ValueError) as error:  # ValueError: a name that holds NUL
        reason = getattr(error, "strerror", None) or error
        raise CacheDoctorError(f"cannot read the tokenizer {path}: {reason}", _HINT) from None
    if magic == b"GGUF" or path.suffix == ".gguf":
        from cachedoctor.prompts.tokenizers.from_gguf import from_gguf

        return from_gguf(path)
    from cachedoctor.prompts.tokenizers.from_json import from_json

    return from_json(path)
