"""The version of vLLM by the number of the source line that prints the statistics, where nothing better is in the log.

Read off the sources of 49 versions, 0.5.4 to 0.33.0: all releases at which the number changes, except 0.15, which was
not looked at and therefore belongs to both its neighbours. The number of the V0 engine (``metrics.py``) is no help:
it went up and down and came back. ``[loggers.py:335]`` is 0.32.0 to 0.33.0.
"""

from __future__ import annotations

from cachedoctor.model import Session

_BY_LINE = {
    69: ("0.7.1", "0.7.1"),
    72: ("0.7.2", "0.7.2"),
    78: ("0.7.3", "0.7.3"),
    80: ("0.8.0", "0.8.2"),
    87: ("0.8.3", "0.8.4"),
    111: ("0.8.5", "0.8.5"),
    116: ("0.9.0", "0.9.0.1"),
    118: ("0.9.1", "0.9.2"),
    122: ("0.10.0", "0.10.0"),
    123: ("0.10.1", "0.10.2"),
    127: ("0.11.0", "0.11.0"),
    236: ("0.11.1", "0.12.0"),
    248: ("0.13.0", "0.13.0"),
    257: ("0.14.0", "0.15.1"),
    259: ("0.15.0", "0.19.1"),
    271: ("0.20.0", "0.23.0"),
    273: ("0.24.0", "0.25.1"),
    310: ("0.26.0", "0.29.0"),
    315: ("0.30.0", "0.30.0"),
    320: ("0.31.0", "0.31.0"),
    335: ("0.32.0", "0.33.0"),
}
"""Line of ``loggers.py`` at which the call stands that prints: oldest and newest version. Forks keep the numbers."""


def by_line(number: int) -> tuple[str, str] | None:
    """Return the oldest and the newest version whose statistics line is ``number``; None for an unknown one."""
    return _BY_LINE.get(number)


def narrow(session: Session, number: int | None, file: str | None) -> None:
    """Take the range of versions from the place that printed a statistics line, unless the version is known."""
    found = by_line(number) if number is not None and file is not None and file.endswith("loggers.py") else None
    if session.version is None and session.version_min is None and found is not None:
        session.version_min, session.version_max = found
        session.build_source = "source"
