"""The one object around which batch, pipe and tail are loops: feed bytes, ask for the report at any time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

import cachedoctor
from cachedoctor.diagnosis.account import from_kv_events
from cachedoctor.diagnosis.account.from_numbers import Placed
from cachedoctor.diagnosis.account.ledger import Ledger
from cachedoctor.diagnosis.rules import registry
from cachedoctor.doctor.analysis.intake import BEGIN, HeldBack, Intake, with_rests
from cachedoctor.doctor.analysis.listener import Shard, add_input
from cachedoctor.doctor.analysis.servers import Servers
from cachedoctor.doctor.analysis.sessions import PeakConversations, Sessions
from cachedoctor.doctor.analysis.spool import OPEN, RowSpool, Spool
from cachedoctor.doctor.analysis.sums import Reuse, Slowest, Sums
from cachedoctor.doctor.faults import Faults
from cachedoctor.doctor.findings.diagnosis import Diagnosis
from cachedoctor.doctor.findings.session_findings import restart
from cachedoctor.doctor.scratch import printable
from cachedoctor.engines.llamacpp.settle import follow
from cachedoctor.engines.llamacpp.tracker import Tracker
from cachedoctor.inputs.envelope.unwrapper import delivered_by
from cachedoctor.knowledge.cmdline import is_for
from cachedoctor.knowledge.texts import base_name
from cachedoctor.model import (
    SEVERITY_ORDER,
    AnalysisOptions,
    CacheSample,
    ClientName,
    Finding,
    Fix,
    GivenOption,
    InputInfo,
    Judged,
    PrefillBatch,
    Report,
    Request,
    RuleInfo,
    Segment,
    Session,
    Setting,
    Totals,
)
from cachedoctor.model.log_lines import LogFile
from cachedoctor.model.row import read_rows
from cachedoctor.model.terms import DEFAULTS
from cachedoctor.report.wire.report_v1 import encode_request, encode_row
from cachedoctor.report.words.traffic_words import LLAMA

if TYPE_CHECKING:
    from cachedoctor.doctor.analysis.listener import Listener
    from cachedoctor.doctor.extras.agent_claims import AgentClaims
    from cachedoctor.doctor.extras.extra_inputs import ExtraInputs
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts, TextTurn
    from cachedoctor.doctor.fixing.fixes import StartInfo
    from cachedoctor.model import Launcher

_OF_FINDINGS = (b"[CD", b"`CD")
"""Every report for people that has findings contains one of these."""
_OF_REPORTS = (b"cachedoctor", b"CD")
"""Every report for programs, and every page of a rule, contains these."""
_UNREAD = 64
"""Number of inputs to describe in which nothing was recognised."""
_UNDECIDED = 4
"""Number of requests to describe if nothing is known about any."""
_REPLAYED = 1000
"""Requests of a log that are kept, so that options can be tried on them in a replay."""
_DECIDING = 1024
"""Requests after which it is decided whether the prompts given with a log belong to it."""


class Analyzer:
    """Feeds on the bytes of one input after the other."""

    def __init__(
        self,
        build: int | None = None,
        prompts: GivenPrompts | None = None,
        given: list[GivenOption] | None = None,
        *,
        keeps_requests: bool = True,
        listener: Listener | None = None,
        options: AnalysisOptions = DEFAULTS,
        extras: ExtraInputs | None = None,
        told: StartInfo | None = None,
    ) -> None:
        """Begin without an input.

        Args:
            build: of llama.cpp, when the log does not show it.
            prompts: those given beside the log.
            given: options of the command line that started the server; what the log shows comes before them.
            keeps_requests: the report lists every request; with a listener, that is who keeps them.
            listener: hears of everything as it happens. If it wants lines, they are read singly, which takes longer.
            options: thresholds of the rules, and those that are not reported.
            extras: dumps of /metrics and responses; the servers of the logs get them in the end.
            told: what somebody says of the start of the servers.
        """
        self._told_start = told
        self._extras = extras
        self._claims = _claims_beside(prompts, extras)
        self._lives = Sessions(given or [])
        self._prompts = prompts
        self._replayable: list[Request] | None = []
        """All requests, in the order of their ends; None where there are too many to be replayed."""
        self._awaiting: list[Request] = []
        """Requests that wait until it is decided whether the prompts are of their log."""
        self._rules, broken = registry.load()
        self._ignored = options.ignored
        self._least = options.min_prompt_tokens
        self._diagnosis = Diagnosis(self._rules, broken, options)
        self._returns = PeakConversations()
        self._listener = listener
        self._spool = Spool(encode_request if keeps_requests else None) if listener is None else listener.spool
        self._late: list[Request] | None = [] if listener is not None and listener.judges_late else None
        """Requests that are judged when their input has ended; None where they are judged as they come."""
        self._inputs: list[InputInfo] = []
        self._sessions = self._lives.sessions
        self._sums = Sums()
        self._ledger = Ledger()
        self._told: dict[int, tuple[Judged, Placed | None]] = {}
        """The last requests as they are counted in the account, by their number."""
        self._reuse = Reuse()
        self._slowest = Slowest()
        self._turns: dict[int, TextTurn] = {}
        self._by_text: dict[int, Request] = {}
        """The first requests with a given prompt, as turns of what their texts continue, by their number."""
        self._askers: dict[int, ClientName] = {}
        """Clients of the last requests whose prompts were given with the log, by their number."""
        self._settled = False
        self._number = 0
        self._undecided: list[Judged] = []
        self._left_open: list[Judged] = []
        self._faults = Faults(self._failed)
        self._servers = Servers(
            self._lives.begin_llama, self._lives.begin, self._next_number, self._examine, self._keep, build,
            keeps_requests, listener if listener is not None and listener.hears_lines else None, self._faults,
        )  # fmt: skip
        self._unread: dict[str, tuple[bytes, int]] = {}
        """First bytes and sizes of inputs in which nothing was recognised."""
        self._rows = {kind: RowSpool() for kind in (CacheSample, PrefillBatch)} if keeps_requests else {}
        self._intake: Intake | None = None
        self._before = 0
        """Lines of the open log in the rotations before its open file."""
        self.begin = b""
        """First bytes of the last input."""
        self._may_quote = False
        """They may be of a report that quotes lines of a log."""
        self._excerpt = self._held_back()
        self._interrupted = False
        self._new: list[str] = []
        """Codes of findings opened since they were last requested."""

    # ---- input

    def open(self, path: str, *, continues: bool = False, line: int = 1) -> InputInfo:
        """Begin an input.

        Args:
            continues: it is the next rotation of the one before, the same server continues.
            line: number of the first line; after the first one of its file another life of the server came before.
        """
        self.close()
        self._lives.follows, self._lives.issue = line > 1, None
        path = printable(path)
        if not continues:
            self._close_trackers()
            self._judge_late()
            self._diagnosis.forget()
            self._reuse.finish()
            self._faults.servers.clear()
            if self._prompts is not None:
                self._prompts.begin()
        self._before = self._before + self._inputs[-1].lines if continues else 0
        self._servers.begin(LogFile(path, self._before), continues)
        self._intake, self.begin, self._may_quote = Intake(path, line), b"", False
        self._excerpt = self._held_back()
        self._inputs.append(self._intake.info)
        if self._listener is not None:
            self._listener.opened(len(self._inputs) - 1, self._intake.info)
        return self._intake.info

    def _held_back(self) -> HeldBack:
        return HeldBack(patient=self._listener is None or self._listener.patient)

    def feed(self, chunk: bytes) -> list[str]:
        """Take bytes of the open input, cut anywhere; returns the codes of findings that are new."""
        if self._intake is None:
            raise RuntimeError("open() comes before feed()")
        if len(self.begin) < BEGIN:
            self.begin += chunk[: BEGIN - len(self.begin)]  # a terminal gives one line at a time
            self._may_quote = any(code in self.begin for code in _OF_FINDINGS)
        return self._arrived(self._intake.feed(chunk))

    def idle(self) -> list[str]:
        """The live input fell silent: close what waits for lines that will not come."""
        new = [] if self._intake is None else self._arrived(self._intake.quiet())
        new += self._segments(self._excerpt.quiet())
        self._servers.each(self._quiet)
        self._join_prompts()
        return new + self._collect()

    def _quiet(self, tracker: Tracker) -> None:
        self._examine(tracker)
        tracker.quiet()

    def close(self) -> None:
        """End of the open input."""
        if self._intake is not None:
            settled = self._intake.settled
            for segments in self._intake.finish():
                self._arrived(segments)
            self._read_excerpt(with_rests(self._excerpt.release()))
            self._lives.place(self._servers.paths, self._servers.certain)
            self._servers.certain = []
            self._note_launcher()
            self._intake, self._settled = None, settled and self._servers.alone
            info = self._inputs[-1]
            if not info.recognised and len(self._unread) < _UNREAD:
                self._unread[info.path] = self.begin, info.bytes

    def _note_launcher(self) -> None:
        """Say what started the servers of the open input."""
        info = self._inputs[-1]
        if info.launcher is None and info.recognised:
            info.launcher = delivered_by(self.begin)

    def _note_start(self, session: Session, launcher: Launcher | None) -> None:
        """Say of a server what started it: advice goes by that."""
        told = self._told_start
        session.launcher = (told and told.launcher) or launcher
        if told is not None and told.line is not None and is_for(told.line, session.engine):
            session.cmdline = told.line

    def _read_excerpt(self, segments: list[Segment]) -> None:
        """Read an input that is no more than an excerpt, after the text above its log."""
        if not segments:
            return
        if any(code in segment.data for segment in segments for code in _OF_FINDINGS) or any(
            code in self.begin for code in _OF_REPORTS
        ):
            from cachedoctor.doctor.analysis.own_reports import is_report, without_quotes

            if is_report(self.begin):
                return
            segments = without_quotes(segments)
        from cachedoctor.engines.llamacpp.pasted_issue import without_repeats

        segments = [replace(segment, data=without_repeats(segment.data)) for segment in segments]
        if len({segment.origin for segment in segments} - {None}) <= 1:
            from cachedoctor.engines.llamacpp.pasted_issue import read_issue

            above = [line for segment in segments if segment.origin is None for line in segment.data.split(b"\n")]
            self._lives.issue = read_issue(above)
        self._segments(segments, excerpt=True)

    def _arrived(self, segments: list[Segment]) -> list[str]:
        if segments and self._may_quote:
            from cachedoctor.doctor.analysis.own_reports import without_quotes

            segments = without_quotes(segments, self.begin)
        return self._segments(self._excerpt.take(segments))

    def _segments(self, segments: list[Segment], *, excerpt: bool = False) -> list[str]:
        if not segments:
            return []
        self._servers.read(segments, excerpt=excerpt)
        found = self._servers.recognised()
        info = self._inputs[-1]
        info.recognised = found.total()
        info.engine = self._servers.writer(found)
        return self._collect()

    def _keep(self, row: CacheSample | PrefillBatch) -> None:
        """Take a sample or a batch."""
        if self._listener is not None:
            self._listener.measured(row, self._sessions[row.session])
        elif self._rows:
            self._rows[type(row)].add(encode_row(row))

    def _next_number(self) -> int:
        self._number += 1
        return self._number - 1

    # ---- output

    def _collect(self) -> list[str]:
        """Examine what the ends of inputs and requests left; give the codes of findings that are new."""
        self._servers.each(self._bring_up)
        new, self._new = self._new, []
        return new

    def _bring_up(self, tracker: Tracker) -> None:
        self._examine(tracker)
        tracker.session.last_line = max(tracker.session.last_line, self._servers.last_line(tracker))
        overdue = self._spool.overdue
        if overdue is not None:
            tracker.give_up(overdue)
            self._examine(tracker)

    def _examine(self, tracker: Tracker) -> None:
        """Ask the rules about the finished requests, however the input was cut into chunks.

        Several at once, step by step, so that the processor's cache holds what a step needs.
        """
        if not tracker.finished:
            return
        finished, tracker.finished[:] = tracker.finished[:], []
        if self._prompts is None or self._prompts.fit is not None:
            self._judge(finished)
            return
        self._awaiting += finished
        if len(self._awaiting) >= _DECIDING:
            self._join_prompts()

    def _join_prompts(self, *, ended: bool = False) -> None:
        """Judge the requests that waited for the prompts given beside the log."""
        if self._prompts is None or not self._awaiting or not self._prompts.decide(self._awaiting, ended=ended):
            return
        waited, self._awaiting = self._awaiting, []
        self._judge(waited)

    def _judge(self, finished: list[Request]) -> None:
        if self._late is None or self._listener is None:
            self._spool.take(self._judged(finished))
        else:
            self._late += finished
            self._spool.take(map(Judged, finished))
            self._listener.ended([(request, self._sessions[request.session]) for request in finished])

    def _judge_late(self) -> None:
        if self._late:
            late, self._late = self._late, []
            self._judged(late)

    def _judged(self, finished: list[Request]) -> list[Judged]:
        self._keep_for_replay(finished)
        judged = []
        for request in finished:
            judged.append(self._ask_again(request) if request.revision else self._ask(request))
            if self._diagnosis.reopened:
                reopened, self._diagnosis.reopened = self._diagnosis.reopened, []
                judged += [self._ask_again(replace(one, revision=one.revision + 1)) for one in reopened]
        if self._turns:
            self._keep_by_text(judged)
        new = [one for one in judged if not one.request.revision]
        self._returns.take(new, self._sessions)
        opened, self._diagnosis.opened = self._diagnosis.opened, []
        self._new += opened
        if self._listener is not None:
            if opened:
                self._note_launcher()
                for one in judged:
                    self._note_start(self._sessions[one.request.session], self._inputs[-1].launcher)
            told = [(one, self._sessions[one.request.session]) for one in judged]
            self._listener.examined(told, self.findings() if opened else [])
        self._account(judged)
        self._slowest.take(judged)
        first = not self._sums.judged
        left_open, undecided = self._sums.add(new, self._least)
        self._left_open += left_open[: _UNDECIDED - len(self._left_open)]
        if first:
            self._undecided += undecided[: _UNDECIDED - len(self._undecided)]
        self._reuse.add(new, self._sessions)
        return judged

    def _keep_for_replay(self, more: list[Request] | None) -> None:
        if self._replayable is None or more is None or len(self._replayable) + len(more) > _REPLAYED:
            self._replayable = None
        else:
            self._replayable += more

    def _keep_by_text(self, judged: list[Judged]) -> None:
        for request in (one.request for one in judged):
            number = request.index
            if number in self._turns and (number in self._by_text or len(self._by_text) < _REPLAYED):
                self._by_text[number] = request

    def _account(self, judged: list[Judged]) -> None:
        """Count requests in the account, those that are judged again in the place of what they were."""
        told, add = self._told, self._ledger.add
        for one in judged:
            r = one.request
            if r.revision:
                before = told.pop(r.index, None)
                if before is None:
                    continue  # final: it is too far back
                add(before[0], -1)
            told[r.index] = one, add(one)
        if self._claims is not None:
            for one in judged:
                self._claims.note(one)
        for number in list(islice(told, max(0, len(told) - OPEN))):
            self._ledger.add_client(*told.pop(number))

    def _ask_again(self, request: Request) -> Judged:
        """Judge a request again that was given before; by its number it takes the place of what it was."""
        turn = self._turns.get(request.index)
        session = self._sessions[request.session]
        text = None if turn is None else turn.difference
        return self._asked_by(self._diagnosis.revise(_by_text(request, turn), session, text))

    def _ask(self, request: Request) -> Judged:
        session = self._sessions[request.session]
        if self._prompts is None:
            return self._diagnosis.examine(request, session)
        turn = self._turn(request, session, self._prompts)
        request = _by_text(request, turn)
        judged = self._diagnosis.examine(request, session, None if turn is None else turn.difference)
        return self._asked_by(judged)

    def _asked_by(self, judged: Judged) -> Judged:
        """The request with the client that its body names."""
        asker = self._askers.get(judged.request.index) if self._askers else None
        return judged if asker is None else replace(judged, asker=asker)

    def _turn(self, request: Request, session: Session, prompts: GivenPrompts) -> TextTurn | None:
        """Which turn of which conversation it is by its text, remembered as long as the request may be revised."""
        turn = prompts.turn(request)
        if prompts.matched:
            session.settings.setdefault("prompts_given", Setting(True, None))
        if prompts.asker is not None:
            self._askers[request.index] = prompts.asker
            if len(self._askers) > OPEN:
                del self._askers[next(iter(self._askers))]
        if turn is not None:
            self._turns[request.index] = turn
            if len(self._turns) > OPEN:
                del self._turns[next(iter(self._turns))]
        return turn

    def _close_trackers(self) -> None:
        self._servers.each(self._end)
        self._collect()
        self._join_prompts(ended=True)

    def _end(self, tracker: Tracker) -> None:
        self._examine(tracker)
        tracker.close_open()

    def _failed(self, words: str) -> None:
        """Say of the open input, or of the last one, that a part of it is missing."""
        info = self._inputs[-1]
        info.error = words if info.error is None else f"{info.error}; {words}"

    @property
    def trackers(self) -> list[Tracker]:
        """One per server that writes to the open input."""
        return self._servers.trackers

    def totals(self) -> Totals:
        """Sums so far."""
        return self._sums.totals(self._diagnosis.avoidable_tokens, self._diagnosis.avoidable_ms, self._least)

    def findings(self) -> list[Finding]:
        """Findings so far, the costliest first."""
        return self._diagnosis.findings()

    def standing(
        self, sessions: list[Session] | None = None, unknown: Sequence[str] = (), *, ended: bool = True
    ) -> list[Finding]:
        """Findings as they would be if the input ended here, those about whole servers included.

        Args:
            sessions: those to speak of, when not all.
            unknown: inputs in which nothing was recognised.
            ended: the input has, so that what a line states by itself is said.
        """
        found = self._diagnosis.findings()
        asked = self._lives.reported() if sessions is None else sessions
        for session in asked:
            # what a rule that is switched off would name is not left open
            session.undecided = None if self._ignored else self._ledger.undecided(session.index)
            session.twins = self._ledger.twins(session.index)
        found += self._diagnosis.inspect(asked, ended=ended)
        found += filter(None, map(self._unknown_input, unknown))
        return sorted(found, key=lambda finding: -SEVERITY_ORDER[finding.severity])

    def _unknown_input(self, path: str) -> Finding | None:
        from cachedoctor.doctor.analysis.resemblance import give, resemblance

        looks = resemblance(*self._unread.get(path, (b"", 0)))
        return self._diagnosis.unknown_input(path, looks, give(looks))

    @property
    def crashed(self) -> bool:
        """Whether a part of us failed: a rule, or what reads an engine.

        The report says which.
        """
        return self._diagnosis.crashed or self._faults.any

    def finish(self, interrupted: bool = False) -> Report:
        """Close everything and give the report."""
        self.end(interrupted)
        return self.snapshot()

    def end(self, interrupted: bool = False) -> None:
        """Close everything."""
        self.close()
        self._close_trackers()
        if self._extras is not None:
            from cachedoctor.doctor.extras.extra_inputs import attach

            attach(self._extras, self._sessions, self._lives.begin)
        self._interrupted = interrupted

    def part(self, path: str) -> Shard:
        """End here; give what was found to another analyzer.

        The requests go to the file ``path``.
        """
        self.close()
        self._close_trackers()
        self._diagnosis.groups.finish()
        self._reuse.finish()
        while self._told:
            self._ledger.add_client(*self._told.popitem()[1])
        with open(path, "wb") as file:
            self._spool.copy_to(file)
        return Shard(
            self._inputs, self._sessions, self._sums, self._ledger, self._reuse, self._number,
            self._diagnosis.groups, self._diagnosis.doubtful, self._diagnosis.failures,
            {kind: b"\n".join(rows.lines()) for kind, rows in self._rows.items()}, self._settled, self._faults.any,
            self._slowest, self.begin, self._replayable,
        )  # fmt: skip

    def merge(self, part: Shard, path: str, line: int = 1) -> None:
        """Take what another analyzer found in the next part; its requests are in the file ``path``.

        ``line``: number of the part's first line, when it is not the first of its file.
        """
        for session in part.sessions:
            session.learn(index=session.index + len(self._sessions))
        if line > 1:
            self._sessions[-1].last_line, part.sessions[0].first_line = line - 1, line
            add_input(self._inputs[-1], part.inputs[0])
            self.begin += part.begin[: BEGIN - len(self.begin)]
            self._note_launcher()
        else:
            self._inputs += part.inputs
            self.begin = part.begin
        part.groups.renumber(self._number, len(self._sessions))
        own = part.replayable
        self._keep_for_replay(
            None
            if own is None
            else [replace(r, index=r.index + self._number, session=r.session + len(self._sessions)) for r in own]
        )
        self._spool.take_over(path, part.requests, len(self._sessions))
        for kind, rows in part.rows.items():
            self._rows[kind].take_over(rows.splitlines(), len(self._sessions))
        self._reuse.merge(part.reuse, len(self._sessions))
        self._slowest.merge(part.slowest, self._number, len(self._sessions))
        self._ledger.merge(part.ledger, self._number, len(self._sessions))
        self._diagnosis.merge(part.groups, part.doubtful, part.crashed)
        self._faults.any |= part.faulty
        self._sessions += part.sessions
        self._number += part.requests
        self._sums.merge(part.sums)

    def _compare_bodies(self, sessions: list[Session]) -> None:
        """Compare given bodies with each other where no log has requests to match them to; for the last server."""
        if self._prompts is None or not sessions or any(s.engine == LLAMA for s in sessions):
            return
        last = sessions[-1]
        if not last.parted:
            last.parted = self._prompts.successive()
            last.sent = self._prompts.summed(last)
            last.callers = self._prompts.callers() or last.callers

    def _name_faults(self) -> None:
        """Name the files beside the log that failed at their work among the inputs, each once."""
        if self._prompts is None:
            return
        named = [(path, error.message) for path, error in self._prompts.faults]
        if not self._prompts.matched and self._prompts.refusals:
            words = f"bodies: {self._prompts.refusals[0].words}"
            named += [(path, words) for path in self._prompts.paths]
        for path, words in named:
            info = InputInfo(printable(path), error=printable(words))
            if info in self._inputs:
                continue
            self._inputs.append(info)
            if self._listener is not None:
                self._listener.opened(len(self._inputs) - 1, info)

    def _unrecognised(self) -> list[str]:
        """Inputs in which nothing was recognised; a rotation without known lines is one of a log that has some."""
        known = {base_name(info.path) for info in self._inputs if info.recognised}
        return [i.path for i in self._inputs if i.lines and not i.recognised and base_name(i.path) not in known]

    def _planned(self, findings: list[Finding], sessions: list[Session]) -> tuple[list[Finding], list[Fix]]:
        """The findings with candidates ranked and options tried on the requests of the log, and what fixes them."""
        if self._replayable and any(map(_is_open, findings)):
            from cachedoctor.doctor.fixing.differential import ranked

            findings = ranked(findings, [self._by_text.get(one.index, one) for one in self._replayable], sessions)
        if not self._replayable or not any(map(_tries, findings)):
            return findings, _fixes(findings, sessions, self._inputs, self._told_start)
        from cachedoctor.doctor.fixing.planner import Planner

        planner = Planner(self._replayable, sessions, self._prompts)
        findings = planner.findings(findings)
        return findings, planner.fixes(_fixes(findings, sessions, self._inputs, self._told_start), findings)

    def lives(self) -> list[Session]:
        """Copies of the lives of servers of which something has been seen so far, with what started them."""
        if self._intake is not None:
            self._note_launcher()
        launchers = {info.path: info.launcher for info in self._inputs}
        for session in self._sessions:
            self._note_start(session, launchers.get(session.path))
        return self._lives.reported()

    def snapshot(self) -> Report:
        """Give the report of what has been seen so far."""
        self._judge_late()
        sessions = self.lives()
        self._compare_bodies(sessions)
        self._name_faults()
        by_code = sorted(self._rules, key=lambda rule: rule.code)
        rules = [RuleInfo(r.code, r.name, r.summary, r.url) for r in by_code]
        findings, fix = self._planned(self.standing(sessions, self._unrecognised()), sessions)
        left = self._diagnosis.not_evaluated(sessions, findings)
        names = {rule.code: rule.name for rule in by_code}
        return Report(
            cachedoctor.__version__, self._inputs, sessions, self.totals(), self._spool, findings,
            left, rules, interrupted=self._interrupted, restart=restart(self._rules, sessions, left),
            slots=self._reuse.slots(), ignored=sorted(self._ignored),
            samples=self._rows.get(CacheSample), batches=self._rows.get(PrefillBatch),
            undecided=list(read_rows(map(encode_request, self._left_open if self._sums.judged else self._undecided))),
            accounts=self._ledger.accounts(names, self._told.values()) or from_kv_events.accounts(sessions, names),
            slowest=self._slowest.turns(), fix=fix,
            clients=self._ledger.by_client(names, self._told.values(), [s.callers for s in sessions]),
            agents=[] if self._claims is None else self._claims.verdicts(names),
        )  # fmt: skip


def _is_open(finding: Finding) -> bool:
    """Whether it leaves open what the cause is, or is a suspicion."""
    return finding.code in ("CD901", "CD904") or finding.confidence == "low"


def _claims_beside(prompts: GivenPrompts | None, extras: ExtraInputs | None) -> AgentClaims | None:
    """What agents say themselves in what was given beside the logs; None where they say nothing."""
    found = [] if prompts is None else prompts.claims()
    found += [] if extras is None else [claim for given in extras.given for claim in given.claims]
    if not found:
        return None
    from cachedoctor.doctor.extras.agent_claims import AgentClaims  # few recordings have any

    return AgentClaims(found)


def _tries(finding: Finding) -> bool:
    """Whether it is of memory or slots, and advises options of the server, or of a kill: these are tried on the log."""
    return finding.code == "CD409" or (
        finding.code.startswith(("CD2", "CD3")) and any(r.options and r.purpose == "fix" for r in finding.remedies)
    )


def _fixes(
    findings: list[Finding], sessions: Sequence[Session], inputs: Sequence[InputInfo], told: StartInfo | None
) -> list[Fix]:
    """What fixes the findings; the launchers are imported where there is something to fix."""
    if not findings:
        return []
    from cachedoctor.doctor.fixing.fixes import fixes

    return fixes(findings, sessions, inputs, told)


def _by_text(request: Request, turn: TextTurn | None) -> Request:
    """The request as a turn of the conversation that its text continues, where that was given."""
    if turn is None:
        return request
    kept = _kept(request, turn)
    reference, told = turn.reference, turn.uncached
    return follow(request, turn.thread, turn.turn, turn.held_thread, reference, kept, turn.together, uncached=told)


def _kept(request: Request, turn: TextTurn) -> int | None:
    """Tokens of the turn before that its text kept: counted where the tokenizer is the model's, else by their share."""
    found = turn.difference
    if found is None:
        return None if turn.turn else 0
    if found.first is None or found.first.kind == "appended":
        return turn.reference
    if found.exact or not found.b.tokens or request.prompt_tokens is None:
        return found.common_prefix_tokens if found.exact else None
    return round(found.common_prefix_tokens / found.b.tokens * request.prompt_tokens)
