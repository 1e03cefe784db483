"""Replay what every request's server had to reuse, and compare it with what it did reuse.

usage: decisions.py DIR [--list] [--workers 2]

DIR is a folder of logs: DIR/**/server.log. The builds are those that the logs themselves say.
"""
from __future__ import annotations
import argparse, sys, json
from collections import Counter
from pathlib import Path
import runs
from cachedoctor.doctor.analyzer import Analyzer
from cachedoctor.rules.replaying import replay, shown
from cachedoctor.model import Request, Session

def collect(log):
    out = []
    analyzer = Analyzer()
    take = analyzer._take
    def keep(request):
        out.append((request, analyzer._sessions[request.session]))
        return take(request)
    analyzer._take = keep
    analyzer.open(str(log)); analyzer.feed(log.read_bytes()); analyzer.finish()
    return out

def verdict(request, session):
    if request.parent is not None or request.cached_tokens is None or request.partial:
        return "no count", None
    r = replay(request, session)
    if r.missing:
        return "missing: " + ", ".join(r.missing), r
    if r.least <= request.cached_tokens <= r.most:
        return ("equal" if r.least == r.most else "within"), r
    return "different", r

def judge(log):
    rows = []
    for request, session in collect(log):
        v, r = verdict(request, session)
        rows.append((v, session.memory, request.task, request.prompt_tokens, request.cached_tokens, request.held_tokens, request.prefix_between, request.common_prefix_tokens, [(c.pos_min,c.pos_max,c.threshold) for c in request.checks][:6], request.forced, request.restored_at, request.oldest_position, session.window, request.held_positions, request.restored_from_ram, request.truncate_failed_at, request.selected_by, (session.build_min, session.build_max), r and (r.least, r.most, r.decision)))
    return log, rows

def main():
    p = argparse.ArgumentParser(); p.add_argument("dir", type=Path); p.add_argument("--out"); a = p.parse_args()
    logs = sorted(a.dir.rglob("server.log"))
    tally = {}; 
    out = open(a.out, "w")
    for log, rows in runs.over(judge, logs, 2):
        v = log.parent.parent.name; model = log.parent.name.split("-")[0]
        c = tally.setdefault((v, model), Counter())
        for row in rows:
            c[row[0]] += 1
            print(f"{row[0]:20}", log.parent.parent.name, log.parent.name, *row[1:], sep=" | ", file=out)
    keys = sorted({k for c in tally.values() for k in c})
    tot = Counter()
    for k in sorted(tally):
        print(*k, dict(sorted(tally[k].items()))); tot.update(tally[k])
    print(dict(tot))
if __name__ == "__main__": main()
