"""Libraries that only some commands need, and how to add them to the Python that runs."""

from __future__ import annotations

import shlex
import sys

LIBRARIES = {
    "tables": ("polars>=1.30",),
    "kv": ("pyzmq>=26",),
    "patch": ("pyyaml>=6.0",),
    "proxy": ("aiohttp>=3.14", "prometheus-client>=0.21"),
    "exporter": ("prometheus-client>=0.21",),
    "ray": ("ray>=2.40",),
    "s3": ("fsspec>=2025.2", "s3fs>=2025.2"),
}
"""By the name of the extra (``pyproject.toml``), without uvloop, which only makes the proxy faster."""


def install(*extras: str) -> str:
    """Return the command that installs the libraries of some extras for the Python that runs.

    It does not name this package: a copy that was installed from a clone or a file is not the one of an index.
    """
    libraries = dict.fromkeys(library for extra in extras for library in LIBRARIES[extra])
    return shlex.join([sys.executable or "python", "-m", "pip", "install", *libraries])
