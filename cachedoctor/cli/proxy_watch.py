"""The live view of what passes a proxy: the file that it writes, followed."""

from __future__ import annotations

import io
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cachedoctor.cli import terminal
from cachedoctor.cli.ending import INTERRUPTED, Interrupts
from cachedoctor.cli.sink import Sink
from cachedoctor.report.base import Appearance

if TYPE_CHECKING:
    from rich.text import Text

    from cachedoctor.inputs.sources.base import Source
    from cachedoctor.inputs.sources.stdin import BegunSource
    from cachedoctor.live.proxy.exchange import PassedRequest
    from cachedoctor.live.proxy.passed_requests import PassedRequests
    from cachedoctor.report.live.screen import Screenful

_HEAD = 1 << 13


def is_of_proxy(path: str, pipe: BegunSource | None = None) -> bool:
    """Whether a file was written by a proxy, or will be: one that is empty and is called like its records.

    Of a ``pipe`` the first line is waited for.
    """
    from cachedoctor.live.proxy.passed_requests import is_passed

    if pipe is not None:
        head = pipe.head(_HEAD, _say_that_it_waits)
        return head.startswith(b"{") and is_passed(head)
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError:  # whoever reads it as a log shows so
        return False
    if not head.startswith(b"{"):
        return not head and path.endswith((".jsonl", ".ndjson"))
    return is_passed(head)


def _say_that_it_waits() -> None:
    if sys.stdout is not None and sys.stdout.isatty():
        terminal.tell("waiting for the first line")


def run(path: str, pipe: BegunSource | None, sink: Sink, look: Appearance, interrupts: Interrupts) -> int:
    """Show what passes until a signal comes, or until the ``pipe`` ends; gives the exit status.

    Raises:
        CacheDoctorError: the file cannot be read.
    """
    from cachedoctor.inputs.sources.follow import FollowSource
    from cachedoctor.live.proxy.passed_requests import PassedRequests

    passed = PassedRequests(path)
    is_screen = sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    shown = _Screen(passed, look, interrupts) if is_screen else _RequestLines(sink, look)
    code = INTERRUPTED
    try:
        with shown, ExitStack() as following:
            source: Source = pipe or FollowSource(path, stop=following.enter_context(interrupts.deferred()))
            for chunk in source.chunks():
                with interrupts.held():
                    shown.take(passed.take(chunk), silent=not chunk)
            code = INTERRUPTED if pipe is None else 0
    except KeyboardInterrupt:
        pass
    _end(passed, sink, terminal.fitted(look))
    return code


class _Screen:
    """Rows on the whole screen."""

    def __init__(self, passed: PassedRequests, look: Appearance, interrupts: Interrupts) -> None:
        from cachedoctor.cli.live_screen import Screen

        self._screen = Screen(look, interrupts, picture=_Picture(passed))

    def __enter__(self) -> _Screen:
        self._screen.__enter__()
        return self

    def __exit__(self, *why: object) -> None:
        self._screen.__exit__(None, None, None)

    def take(self, _: list[PassedRequest], silent: bool) -> None:
        self._screen.due(silent)


class _Picture:
    def __init__(self, passed: PassedRequests) -> None:
        self._passed = passed

    def count(self) -> int:
        return len(self._passed.view().conversations)

    def draw(self, width: int, height: int, ascii_only: bool, chosen: Screenful) -> list[Text]:
        from cachedoctor.report.live.proxy_screen import draw

        return draw(self._passed.view(), width, height, ascii_only, chosen)


class _RequestLines:
    """A line for each request, as the proxy itself prints them."""

    def __init__(self, sink: Sink, look: Appearance) -> None:
        self._sink, self._look = sink, look

    def __enter__(self) -> _RequestLines:
        return self

    def __exit__(self, *why: object) -> None:
        pass

    def take(self, seen: list[PassedRequest], silent: bool) -> None:
        from cachedoctor.live.proxy.passed_requests import line

        if seen:
            with self._sink.writing() as out:
                out.writelines(self._look.encode(line(one, self._look.ascii_only) + "\n") for one in seen)


def _end(passed: PassedRequests, sink: Sink, look: Appearance) -> None:
    """Print all conversations."""
    from rich.console import Console

    from cachedoctor.report.live.proxy_screen import summary

    text = io.StringIO()
    console = Console(
        file=text, width=look.width, color_system="256" if look.color else None, force_terminal=look.color,
        no_color=not look.color, force_jupyter=False, legacy_windows=False, highlight=False, markup=False, emoji=False,
    )  # fmt: skip
    for row in summary(passed.view(), look.width, look.ascii_only):
        row.rstrip()
        console.print(row, soft_wrap=True)
    with sink.writing() as out:
        out.write(look.encode(text.getvalue()))
