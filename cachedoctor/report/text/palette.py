"""Colours of the terminal's formats: each can be read on black and on white, with a contrast of at least 4.5.

Numbers are those of the 256 colours that every terminal draws alike; the first 16 are not, as each theme has its own.
"""

from __future__ import annotations

ERROR, WARNING, NOTE = "bold color(163)", "bold color(131)", "bold color(63)"
COMMAND, OLD, NEW = "color(29)", "bold color(131)", "bold color(29)"
GUTTER, BARS = "color(243)", "color(63)"
KEY = "bold"
SEVERITY = {"error": ERROR, "warning": WARNING, "note": NOTE}
"""Style of the word by severity."""
ALL = (ERROR, WARNING, NOTE, COMMAND, OLD, NEW, GUTTER, BARS)
"""Every style with a colour."""
