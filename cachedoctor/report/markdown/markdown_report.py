"""The report as Markdown, ready for an issue of llama.cpp, without any prompt text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from cachedoctor.model import Finding, Report, RequestRow, Session
from cachedoctor.redaction.sanitize import ShownReport
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.base import Appearance
from cachedoctor.report.markdown.markdown_finding import reproduce, show
from cachedoctor.report.markdown.markdown_safe import cell, code, details, fenced, prose, table
from cachedoctor.report.report_view import FindingView, ReportView
from cachedoctor.report.words import traffic_words
from cachedoctor.report.words.measurements import grid, largest, measures, said
from cachedoctor.report.words.numbers import computed, count, duration, number, percent, unknown_lengths
from cachedoctor.report.words.remarks import filtered, grouped, remarks, switched_off
from cachedoctor.report.words.traffic_words import computed_for

MOST = 5
"""Servers; of more, those of which most was measured."""


def show_measured(sessions: Sequence[Session]) -> list[str]:
    """Return a list for each server, and a table where it has several engines or periods."""
    found = [session for session in sessions if measures(session)]
    parts = []
    for session in largest(found, MOST):
        if len(sessions) > 1:
            origin = f" {code(hidden(session.origin))}" if session.origin else ""
            parts.append(f"Server {session.index + 1}{origin}:")
        parts += _session(session)
    if len(found) > MOST:
        parts.append(f"And {count(len(found) - MOST, 'other server')} with measurements.")
    return parts


def _session(session: Session) -> list[str]:
    parts = ["\n".join(f"- {key.capitalize()}: {prose(hidden(words))}" for key, words in said(session))]
    found = grid(session)
    if found is not None:
        head = [found.key, *(" ".join(filter(None, heading)) for heading in found.headings)]
        parts.append(table(head, [[cell(row.name), *row.cells] for row in found.rows], left=1))
        if found.more:
            parts.append(f"And {number(found.more)} more.")
    return parts


SESSIONS, WHOLE, BRIEF = 5, 8, 50
"""Servers described; findings shown in full; findings shown as one line: an issue holds 65,536 characters."""
_SOURCE = {
    "line": "",
    "option": ", as given by `--build`",
    "wording": ", inferred from its messages",
    "source": ", inferred from source line numbers",
    "paste": ", from the text above the log",
}
_TROUBLE = {traffic_words.LLAMA: "recomputes prompts"}
"""Subject of an engine's findings, if it is not the cache in general."""


def write(report: ShownReport, out: IO[bytes], look: Appearance) -> None:
    """Write the report; parts are separated by an empty line."""
    out.write(look.encode("\n\n".join(_parts(ReportView(report), look.pages)) + "\n"))


def _parts(view: ReportView, pages: str | None) -> list[str]:
    report, found = view.report, view.causes
    rows = _rows(report, [one.first for one in found[:WHOLE]])
    parts = [_title(view), _about(view), "### Name and version", *_servers(report)]
    parts += ["### What was measured", *_measured(report)]
    if found:
        parts += ["### Findings"]
        for at, one in enumerate(found[:WHOLE], 1):
            parts += show(at, one, rows, view.several, pages)
        parts += _brief(found[WHOLE:])
        parts += reproduce([one.first for one in found[:WHOLE]], rows)
    if report.not_evaluated:
        parts += ["### Not checked", _left(report)]
    return parts


def _rows(report: Report, findings: list[Finding]) -> dict[int, RequestRow]:
    """The requests that findings name, by number: one pass over what may be millions."""
    wanted = {number for finding in findings for number in finding.requests}
    return {row.index: row for row in report.requests if row.index in wanted} if wanted else {}


def _title(view: ReportView) -> str:
    report = view.report
    if not view.has_causes:
        names = dict.fromkeys(_server_name(s) for s in report.sessions[:SESSIONS])
        none = "no cause found" if report.findings else "no findings"
        said = none if view.cannot_tell is None else "cannot tell"
        return f"## {', '.join(names) or _program(traffic_words.LLAMA)}: {said}"
    engine = traffic_words.of_rule(report.findings[0].code)
    return f"## {_program(engine)} {_TROUBLE.get(engine, 'and its prefix cache')}: {prose(report.findings[0].name)}"


def _server_name(session: Session) -> str:
    return (
        _program(traffic_words.LLAMA)
        if session.engine == traffic_words.LLAMA
        else prose(traffic_words.program(session))
    )


def _program(engine: str) -> str:
    return "llama-server" if engine == traffic_words.LLAMA else prose(traffic_words.engine(engine))


def _about(view: ReportView) -> str:
    report = view.report
    lines = sum(info.lines for info in report.inputs)
    read = f"from {count(lines, 'line')} of log" if lines else "from an empty log"
    known = f", {_share(sum(info.recognised for info in report.inputs), lines)} of them recognised" if lines else ""
    parts = [f"{view.verdict} Written by cachedoctor {prose(report.tool_version)} {read}{known}."]
    if report.filtered is not None:
        parts.append(filtered(report))
    parts += remarks(report)
    if report.ignored:
        parts.append(switched_off(report.ignored))
    if report.interrupted:
        parts.append("The analysis was interrupted; this report covers the part read until then.")
    parts.append("Prompt text is withheld; API keys, e-mail addresses and user names are redacted.")
    errors = [f"- {code(hidden(info.path))}: {prose(hidden(info.error))}" for info in report.inputs if info.error]
    return "\n".join([" ".join(parts), *(["", "Could not be read to the end:", "", *errors] if errors else ())])


# ---- what the servers are


def _servers(report: Report) -> list[str]:
    if not report.sessions:
        return ["The log does not name a server."]
    told = {evidence.session for finding in report.findings for evidence in finding.evidence[:1]}
    ranked = sorted(report.sessions, key=lambda s: (s.index not in told, not s.n_requests, s.index))
    shown = sorted(ranked[:SESSIONS], key=lambda s: s.index)
    parts = [_server(session, len(report.sessions) > 1) for session in shown]
    if len(report.sessions) > len(shown):
        parts.append(f"And {count(len(report.sessions) - len(shown), 'other server')} in the same input.")
    backend = ", GGML backend" if any(s.engine == traffic_words.LLAMA for s in shown) else ""
    line = "" if all(s.cmdline is not None for s in shown) else ", command line"
    parts.append(
        f"Please add to this report: operating system, hardware{backend}{line}. The log does not show these details."
    )
    rows = [_settings(session, len(shown) > 1) for session in shown if session.settings]
    return [*parts, details("Settings that the log shows", *rows)] if rows else parts


def _server(session: Session, several: bool) -> str:
    s = session
    version = f"{prose(traffic_words.version(s))}{_SOURCE.get(s.build_source or '', '')}"
    rows = [
        f"- Version: {prose(traffic_words.program(s))} {version}".rstrip(),
        f"- Model: {code(s.model) if s.model else 'unknown'}, {_memory(s)}",
        *_kept(s),
        *([f"- Command line: {code(hidden(s.cmdline))}"] if s.cmdline is not None else []),
    ]
    if several:
        origin = f" {code(hidden(s.origin))}" if s.origin else ""
        lines = f"lines {s.first_line:,} to {s.last_line:,}"
        requests = f"{count(s.n_requests, 'request')}, " if s.engine == traffic_words.LLAMA else ""
        head = f"Server {s.index + 1}{origin}: {requests}{code(hidden(s.path))} {lines}"
        rows = [head, "", *rows]
    return "\n".join(rows)


def _kept(s: Session) -> list[str]:
    if s.engine == traffic_words.LLAMA:
        return [f"- Slots: {_slots(s)}"]
    cache = traffic_words.cache(s)
    return [f"- Cache: {prose(', '.join(cache))}"] if cache else []


def _slots(s: Session) -> str:
    slots = count(s.n_slots, "slot") if s.n_slots else "number unknown"
    return f"{slots}, " + (f"{count(s.n_ctx_slot, 'token')} each" if s.n_ctx_slot else "context unknown")


def _memory(session: Session) -> str:
    arch = session.setting("arch") if session.engine == traffic_words.LLAMA else session.setting("architecture")
    window = session.setting("n_swa")
    parts = [f"{prose(session.memory)} memory"] if session.memory else []
    if not parts and session.engine == traffic_words.LLAMA:
        parts.append("model type: not in this log")
    if arch is not None:
        parts.append(f"architecture {code(str(arch))}")
    if session.memory == "swa" and isinstance(window, int):
        parts.append(f"window of {count(window, 'token')}")
    return ", ".join(parts)


def _settings(session: Session, several: bool) -> str:
    rows = [f"Server {session.index + 1}:", ""] if several else []
    for name, found in session.settings.items():
        place = f"line {found.line:,}" if found.line is not None else "not from a line of the log"
        value = str(found.value).lower() if isinstance(found.value, bool) else str(found.value)
        rows.append(f"- {code(name)} = {code(value)} ({place})")
    return "\n".join(rows)


# ---- numbers and the rest


def _measured(report: Report) -> list[str]:
    engines = {s.engine for s in report.sessions} or {traffic_words.LLAMA}
    parts = ["llama-server:"] if len(engines) > 1 and traffic_words.LLAMA in engines else []
    parts += [_traffic(report)] if traffic_words.LLAMA in engines else []
    return [*parts, *show_measured(report.sessions)]


def _traffic(report: Report) -> str:
    totals, account = report.totals, computed_for(report)
    rows = [f"- Traffic: {count(totals.requests, 'request')}"]
    if not totals.prompt_tokens:
        unknown = f"; {unknown_lengths(totals.requests)}" if totals.requests else ""
        return rows[0] + unknown
    rows[0] += f", {count(totals.prompt_tokens, 'prompt token')}"
    saved = f", {duration(totals.avoidable_ms)}" if totals.avoidable_ms else ""
    for name, tokens, time in (("Reused", totals.cached_tokens, ""), ("Avoidable", totals.avoidable_tokens, saved)):
        rows.append(f"- {name}: {count(tokens, 'token')} ({_share(tokens, totals.prompt_tokens)}){time}")
    rows.insert(2, f"- Computed: {prose(computed(totals))}")
    if account:
        rows.insert(3, f"- Account of the prompt tokens: {prose(account)}")
    return "\n".join(rows)


def _share(part: float, whole: float) -> str:
    return percent(part, whole).replace("<", "below").replace(">", "above")


def _brief(found: list[FindingView]) -> list[str]:
    if not found:
        return []
    rows = []
    for one in found[:BRIEF]:
        f, many = one.finding, f" ({one.many})" if one.many else ""
        rows.append(f"- {prose(f.severity)} {code(f.code)} {prose(f.name)}: {prose(f.claim)}{many}")
    if len(found) > BRIEF:
        rows.append(f"- and {number(len(found) - BRIEF)} more, in the JSON report")
    return [details(f"{count(len(found), 'other finding')}", "\n".join(rows))]


def _left(report: Report) -> str:
    parts = []
    for group in grouped(report.not_evaluated):
        names = ", ".join(f"{code(rule.code)} {prose(rule.name)}" for rule in group.rules)
        more = f" To enable the check: {prose(group.advice)}" if group.advice else ""
        parts.append(f"- {names}: {prose(group.reason)}.{more}")
        if group.commands:
            parts.append(fenced(group.commands, "sh", "  "))
    open_rules = count(len({rule.code for rule in report.not_evaluated}), "rule")
    return details(f"{open_rules} that this log has no data for", *parts)
