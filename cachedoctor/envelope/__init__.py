"""Takes the wrappers of other programs off log lines. Knows wrappers; must not know what a server message means."""

from cachedoctor.envelope.unwrapper import Unwrapper

__all__ = ["Unwrapper"]
