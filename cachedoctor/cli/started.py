"""What ``--cmdline`` says of the start of a server: a command line, or a file that holds one."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cachedoctor.cli.common_options import LauncherName
    from cachedoctor.doctor.fixing.fixes import Told
    from cachedoctor.model import Given

_OTHERS = re.compile(r"(?:^|[\s/])(?:vllm\s+serve|vllm\.entrypoints|sglang(?:\.launch_server|\s+serve))\b")
"""What starts a server whose options nobody reads here."""


def starts_another(line: str) -> bool:
    """Whether a command line starts vLLM or SGLang."""
    return _OTHERS.search(line) is not None


class Started(NamedTuple):
    """What somebody says of the start of a server."""

    line: str | None
    """Its command line."""
    launcher: LauncherName | None
    """What holds it."""
    file: str | None = None
    """Where it stands, as ``fix --file`` takes it."""

    @property
    def given(self) -> list[Given]:
        """The options of the line that are checked; raises ``CacheDoctorError`` where it is not llama-server's."""
        if self.line is None:
            return []
        from cachedoctor.knowledge.cmdline import parse
        from cachedoctor.model import CacheDoctorError

        if starts_another(self.line):
            what = "--cmdline is about llama-server: options of vLLM and SGLang are not checked"
            raise CacheDoctorError(what, "their logs say at the start how they were resolved")
        return parse(self.line)

    @property
    def told(self) -> Told | None:
        """The same for fixes; None where nothing was said."""
        if self.launcher is None and self.line is None:
            return None
        from cachedoctor.doctor.fixing.fixes import Told

        return Told(self.launcher, self.line, self.file)


def started(cmdline: str | None, launcher: LauncherName | None = None) -> Started:
    """Read what was given as ``--cmdline``: a command line, or the file that holds one."""
    if cmdline is None or not (os.path.isfile(cmdline) or os.path.isfile(cmdline.rpartition(":")[0])):
        return Started(cmdline, launcher)
    from cachedoctor.doctor.fixing.start_files import start_of

    found = start_of(cmdline, launcher)
    return Started(cmdline, launcher) if found is None else Started(found.line, launcher or found.launcher, found.file)
