"""Libraries that only some commands need, and how to add them to the installed copy of cachedoctor."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

INDEX_NAME: str | None = None
"""Name under which a package index offers cachedoctor. None: no index offers it, and texts for users must not name one.

When a release is uploaded, set it here; README's section "Install it" is the other text that changes.
"""

LIBRARIES = {
    "tables": ("polars>=1.30",),
    "kv": ("pyzmq>=26",),
    "patch": ("pyyaml>=6.0",),
    "proxy": ("aiohttp>=3.14", "prometheus-client>=0.21"),
    "exporter": ("prometheus-client>=0.21",),
    "ray": ("ray>=2.40",),
    "s3": ("fsspec>=2025.2", "s3fs>=2025.2"),
}
"""Libraries by the name of their extra (``pyproject.toml``), without uvloop, which only makes the proxy faster."""


@dataclass(frozen=True, slots=True)
class Installation:
    """How a copy was installed: ``record`` is its ``direct_url.json`` (PEP 610), ``installer`` its writer."""

    record: str | None = None
    installer: str = "pip"

    def requirement(self, extras: tuple[str, ...]) -> list[str] | None:
        """Return arguments that install this copy again with ``extras``, or None if its source is gone or unknown."""
        wanted = f"[{','.join(extras)}]"
        from urllib.parse import urlsplit  # here: few runs need a hint
        from urllib.request import url2pathname

        if self.record is None:
            return None if INDEX_NAME is None else [f"{INDEX_NAME}{wanted}"]
        try:
            record = json.loads(self.record)
            url = record["url"]
            address = urlsplit(url)
            if address.scheme == "file":
                path = url2pathname(address.path)
                if "[" in path or not Path(path).exists():
                    return None
                return [*(["-e"] if record.get("dir_info", {}).get("editable") else []), f"{path}{wanted}"]
            if not address.netloc:
                return None
            if "vcs_info" in record:
                vcs = record["vcs_info"]
                return [f"cachedoctor{wanted} @ {vcs['vcs']}+{url}@{vcs['commit_id']}"]
            return [f"cachedoctor{wanted} @ {url}"]
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def installation() -> Installation:
    """Read how this copy was installed; one that was not installed (``PYTHONPATH``) has no record."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution("cachedoctor")
    except PackageNotFoundError:
        return Installation()
    return Installation(found.read_text("direct_url.json"), (found.read_text("INSTALLER") or "pip").strip())


def install(*extras: str, copy: Installation | None = None) -> str:
    """Return the command that adds some extras to the Python that runs.

    It installs from where ``copy`` came from: a clone, a wheel file, a commit of a repository. If that is unknown, it
    names the libraries instead of this package, whose name an index may offer from somebody else.
    """
    copy = installation() if copy is None else copy
    python = sys.executable or "python"
    command = (
        ["uv", "pip", "install", "--python", python] if copy.installer == "uv" else [python, "-m", "pip", "install"]
    )
    libraries = dict.fromkeys(library for extra in extras for library in LIBRARIES[extra])
    return shlex.join([*command, *(copy.requirement(extras) or libraries)])
