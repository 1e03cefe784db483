"""What ``--cmdline`` says of the start of a server: a command line, or a file that holds one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from cachedoctor.cli import terminal
from cachedoctor.knowledge.engines import BOTH, ENGINES

if TYPE_CHECKING:
    from cachedoctor.cli.common_options import LauncherName
    from cachedoctor.doctor.fixing.fixes import StartInfo
    from cachedoctor.model import GivenOption


class Started(msgspec.Struct, frozen=True):
    """What somebody says of the start of a server."""

    line: str | None
    """Its command line."""
    launcher: LauncherName | None
    """What holds it."""
    file: str | None = None
    """File that contains it, as ``fix --file`` takes it."""

    @property
    def given(self) -> list[GivenOption]:
        """The options of the line that are checked: of vLLM and SGLang none are."""
        if self.line is None or self.is_of_another:
            return []
        from cachedoctor.knowledge.cmdline import parse

        return parse(self.line)

    @property
    def is_of_another(self) -> bool:
        """Whether the line starts vLLM or SGLang."""
        from cachedoctor.knowledge.cmdline import engine_of

        return self.line is not None and engine_of(self.line) in ENGINES

    def say_what_is_not_checked(self) -> None:
        """Say so where nobody looks at the options: silence would look like approval."""
        if self.is_of_another:
            what = f"--cmdline: {BOTH} options are not checked; these options only decide how fixes are written"
            terminal.complain(what, f"the first lines of {BOTH} logs show the resolved options", "note")

    def demand_llama_server(self) -> None:
        """Raise ``CacheDoctorError`` where the line starts something else."""
        if self.is_of_another:
            from cachedoctor.model import CacheDoctorError

            what = f"--cmdline is for llama-server, not for {BOTH}"
            raise CacheDoctorError(what, f"the first lines of {BOTH} logs show the resolved settings")

    @property
    def told(self) -> StartInfo | None:
        """The same for fixes; None where nothing was said."""
        if self.launcher is None and self.line is None:
            return None
        from cachedoctor.doctor.fixing.fixes import StartInfo

        return StartInfo(self.launcher, self.line, self.file)


def started(cmdline: str | None, launcher: LauncherName | None = None) -> Started:
    """Read what was given as ``--cmdline``: a command line, or the file that holds one."""
    if cmdline is None or not (os.path.isfile(cmdline) or os.path.isfile(cmdline.rpartition(":")[0])):
        return Started(cmdline, launcher)
    from cachedoctor.doctor.fixing.patches import start_of

    found = start_of(cmdline, launcher)
    return Started(cmdline, launcher) if found is None else Started(found.line, launcher or found.launcher, found.file)
