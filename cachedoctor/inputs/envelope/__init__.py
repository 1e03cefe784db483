"""Takes the wrappers of other programs off log lines, or writes them again."""

from cachedoctor.inputs.envelope.documents import MOST, Documents, NewestFirst
from cachedoctor.inputs.envelope.rewriter import Rewriter
from cachedoctor.inputs.envelope.shapes import is_shaped
from cachedoctor.inputs.envelope.unwrapper import Unwrapper

__all__ = ["MOST", "Documents", "NewestFirst", "Rewriter", "Unwrapper", "is_shaped"]
