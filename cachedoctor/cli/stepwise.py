"""The analysis step by step: an interrupt never finds a step half done, and somebody hears of every step.

Imported when an analysis begins, since it brings all stages with it. Knows interrupts; knows no output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model.options import DEFAULTS

if TYPE_CHECKING:
    from cachedoctor.cli.keys import Interrupts
    from cachedoctor.doctor.analysis.listener import Listener, Shard
    from cachedoctor.doctor.extras.extra_inputs import ExtraInputs
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
    from cachedoctor.doctor.fixing.fixes import Told
    from cachedoctor.doctor.redact.unknown_lines import UnknownLines
    from cachedoctor.model import Finding, Given, InputInfo, Options


class Hearer(Protocol):
    """Who shows something while the analysis runs."""

    def step(self, new: list[str], silent: bool, findings: Callable[[], list[Finding]]) -> None:
        """Hear that bytes were taken, or that the input is silent; ``new`` are the codes of new findings."""


class Stepwise(Analyzer):
    """An analyzer whose steps are held together."""

    def __init__(
        self,
        interrupts: Interrupts,
        hearers: Sequence[Hearer],
        listener: Listener | None = None,
        build: int | None = None,
        prompts: GivenPrompts | None = None,
        given: list[Given] | None = None,
        *,
        keeps_requests: bool = False,
        options: Options = DEFAULTS,
        extras: ExtraInputs | None = None,
        unknown: UnknownLines | None = None,
        told: Told | None = None,
    ) -> None:
        """``hearers`` hear of steps, ``listener`` of what happens in them, ``unknown`` reads what is read here; the
        others are the analyzer's own."""
        super().__init__(
            build, prompts, given, keeps_requests=keeps_requests, listener=listener, options=options, extras=extras,
            told=told,
        )  # fmt: skip
        self._interrupts = interrupts
        self._hearers = hearers
        self._unknown = unknown

    def open(self, path: str, *, continues: bool = False, line: int = 1) -> InputInfo:
        """Begin an input."""
        with self._interrupts.held():
            info = super().open(path, continues=continues, line=line)
            if self._unknown is not None:  # only now: what was open before is closed first
                self._unknown.open(path)
            return info

    def merge(self, part: Shard, path: str, line: int = 1) -> None:
        """Take what another analyzer found."""
        with self._interrupts.held():
            super().merge(part, path, line)

    def close(self) -> None:
        """End of the open input."""
        with self._interrupts.held():
            if self._unknown is not None:
                self._unknown.close()
            super().close()

    def feed(self, chunk: bytes) -> list[str]:
        """Take bytes of the open input."""
        with self._interrupts.held():
            if self._unknown is not None:
                self._unknown.feed(chunk)
            return self._heard(super().feed(chunk), False)

    def idle(self) -> list[str]:
        """The live input fell silent."""
        with self._interrupts.held():
            if self._unknown is not None:
                self._unknown.idle()
            return self._heard(super().idle(), True)

    def _heard(self, new: list[str], silent: bool) -> list[str]:
        for hearer in self._hearers:
            hearer.step(new, silent, self.findings)
        return new
