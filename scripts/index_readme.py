"""The README as package indexes show it: with links that lead to the files of this version.

hatchling calls it (``pyproject.toml``); on the page of an index there are no files beside the README.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?\[(?:[^\[\]]|!\[[^\[\]]*\]\([^()]*\))*\]\()(?![a-z]+:|#|//)([^()\s]+)(?=\))")


def with_whole_addresses(text: str, repository: str, tag: str) -> str:
    """Return Markdown whose links and pictures of files have the address that they have in the repository."""
    raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/", 1)

    def whole(link: re.Match[str]) -> str:
        return f"{link[1]}{f'{raw}/{tag}' if link[1][0] == '!' else f'{repository}/blob/{tag}'}/{link[2]}"

    return _LINK.sub(whole, text)


class IndexReadme(MetadataHookInterface):
    """Gives the metadata its description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README."""
        text = (Path(self.root) / "README.md").read_text("utf-8")
        text = with_whole_addresses(text, metadata["urls"]["Repository"], f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
