"""The optional dependency of tables: ``pip install 'cachedoctor[tables]'`` brings polars."""

from __future__ import annotations

from cachedoctor.model import CacheDoctorError


def require_polars(what: str) -> None:
    """Check that polars can be imported, before a log is read for minutes.

    Args:
        what: what needs it, as the user calls it.

    Raises:
        CacheDoctorError: it is not installed.
    """
    try:
        import polars  # noqa: F401
    except ImportError:
        raise CacheDoctorError(f"{what} needs polars", "pip install 'cachedoctor[tables]'") from None
