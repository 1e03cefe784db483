"""An error that the user can fix."""

from __future__ import annotations


class CacheDoctorError(Exception):
    """A fault that the user can fix: one line, a hint, and the exit status of the command."""

    def __init__(self, message: str, hint: str = "", exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
