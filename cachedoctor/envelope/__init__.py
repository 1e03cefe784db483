"""Takes the wrappers of other programs off log lines, or writes them anew. Knows wrappers; must not know what a server
message means."""

from cachedoctor.envelope.documents import MOST, Documents
from cachedoctor.envelope.newest_first import NewestFirst
from cachedoctor.envelope.rewriter import Rewriter
from cachedoctor.envelope.shapes import is_shaped
from cachedoctor.envelope.unwrapper import Unwrapper

__all__ = ["MOST", "Documents", "NewestFirst", "Rewriter", "Unwrapper", "is_shaped"]
