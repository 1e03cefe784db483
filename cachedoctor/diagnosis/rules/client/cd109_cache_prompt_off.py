"""CD109: the client, or an option, switched prompt caching off."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit


def _shows_forcing(facts: kit.Facts) -> bool:
    """Whether a forced re-processing would be in this log: default level before b9873, trace after."""
    return "forcing" in facts.shows


def _tells_adapters(s: kit.RuleContext) -> bool:
    """Whether a change of adapters would show, which clears the slot just so: b9294 and newer print it at trace level,
    bodies show as well."""
    return "adapters" in s.facts.shows or s.difference is not None


def _shares(r: kit.Request) -> tuple[float | None, float | None]:
    """Share of the prompt that the slot held, and of that the share that was kept: of the prompt that the RAM cache gave
    back, where it did, else of the slot that was chosen for it."""
    choice = r.seen.choice
    if choice.found_keep is not None:
        return choice.found_sim, choice.found_keep
    return (r.similarity, r.f_keep) if choice.selected_by == "lcp" else (None, None)


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when nothing is reused although the slot holds nearly the whole prompt and nothing forced that."""
    r = s.request
    if r.uncached and s.lost and r.cached_tokens == 0:
        return kit.Match(s.lost, "high")
    if (
        not s.lost
        or r.cached_tokens != 0
        or r.seen.forced
        or r.seen.truncate_failed_at is not None
        or "ram_failed" in r.marks
    ):
        return None
    similarity, f_keep = _shares(r)
    if (similarity or 0) < 0.5 or s.facts.at_least(6629) is False or r.shifted:
        return None
    kept_all = f_keep is not None and f_keep >= 0.9995
    visible = _shows_forcing(s.facts)
    # memory that cannot go back is searched for a checkpoint where the prompt diverges, and the outcome is printed;
    # a dropped checkpoint explains the loss as well, so a log without that outcome may be a filtered one
    searched = bool(r.seen.checks) or bool(r.restored) or r.dropped is not None
    if not kept_all and s.facts.memory != "attention" and (searched or not visible):
        return None
    chosen = [h for h in s.history if h.seen.choice.selected_by == "lcp"]
    if not visible and (not kept_all or any(h.cached_tokens or (h.f_keep or 0) < 0.9995 for h in chosen)):
        return None  # f_keep is rounded and the memory hidden: only a row of such requests says something
    if visible and kept_all and s.facts.memory != "attention" and r.seen.checks:
        return None
    sure = visible and _tells_adapters(s) and (s.facts.memory == "attention" or kept_all) and not r.seen.checks
    return kit.Match(s.lost, "high" if sure else "medium" if visible or chosen else "low")


PROOF = kit.lines(
    ("ram", "the RAM cache restores nearly all of this prompt"),
    ("select", "the slot holds nearly all of this prompt"),
    ("cached", "nothing reused"),
    kit.RECOMPUTED,
    numbers=lambda s: {"visible": _shows_forcing(s.facts), "told": _tells_adapters(s)},
)


_HIDDEN = "not excluded: a model that can only go back to a checkpoint reuses nothing without one; this log level hides the type of memory and the checkpoints"
_ON_THE_SERVER = "On the server: remove --no-cache-prompt (and LLAMA_ARG_CACHE_PROMPT=0)"


def _tell_apart(g: kit.MatchGroup) -> kit.Remedy:
    words, changes = advice.show_accounting(g.session)
    return kit.Remedy(
        f"To decide, check the request bodies, or log more: {words}.",
        options=changes,
        purpose="look",
    )


_IN_THE_CLIENT = kit.Remedy('In the client: remove "cache_prompt": false from the request body (the default is true).')


def _as_asked(g: kit.MatchGroup) -> kit.FindingText:
    """Say that the bodies ask for it."""
    return kit.FindingText(
        f'the request bodies switch the cache off ("cache_prompt": false): {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}',
        "The server then starts at token 0 and ignores its cached tokens.",
        [_IN_THE_CLIENT],
        [kit.RuledOut("prefix-diverges-early", "with this setting no prompt is reused")],
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what to remove."""
    if g.worst_request.uncached:
        return _as_asked(g)
    f, similarity = g.numbers, _shares(g.worst_request)[0] or 0.0
    told = g.session.setting("cache_prompt") is False
    out = [
        kit.RuledOut("prefix-diverges-early", f"the slot held this prompt's beginning (similarity {similarity:.3f})")
    ]
    if not f["told"]:
        out.append(
            kit.RuledOut(
                "lora-changed",
                "not excluded: a request with other LoRA adapters or scales reuses nothing either, and this log level hides the adapters",
            )
        )
    if f["visible"]:
        out.append(
            kit.RuledOut("no-usable-checkpoint", "the server would have printed a line about forced re-processing")
        )
    elif g.session.memory is None:
        out.append(kit.RuledOut("checkpoints-disabled", _HIDDEN))
    return kit.FindingText(
        f"nothing was reused although the slot held {100 * similarity:.1f} % of the prompt: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        "The setting cache_prompt=false has this effect: the server starts at token 0 and ignores its cached tokens."
        + ("" if f["told"] else " At this log level other causes look the same."),
        [
            _IN_THE_CLIENT,
            *([] if f["told"] else [_tell_apart(g)]),
            *(
                []
                if g.session.at_least(7827) is False
                else [
                    kit.Remedy(
                        _ON_THE_SERVER + (", as the command line shows." if told else ", b7827 and newer."),
                        options=kit.left_out("--no-cache-prompt", "LLAMA_ARG_CACHE_PROMPT") if told else [],
                    )
                ]
            ),
        ],
        out,
    )


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it for a llama.cpp up to early 2024, in which a request that uses the cache prints the cached tokens."""
    said = kit.stated(session, "unasked")
    if said is None:
        return []
    words = kit.FindingText(
        f"a slot that held {kit.n(said.numbers['tokens'])} tokens was emptied for the next request ({kit.times(said.count)})",
        'The request did not turn the cache on. With "cache_prompt": true this server prints "in cache: N tokens" first, and these builds do not use '
        "the cache by default.",
        [
            kit.Remedy('In the client: send "cache_prompt": true in the request body.'),
            kit.Remedy("Or update llama.cpp: newer builds use the cache by default."),
        ],
        [
            kit.RuledOut(
                "prefix-diverges-early",
                'the server did not compare the prompts; otherwise it would have printed "in cache:"',
            )
        ],
    )
    return [kit.SessionFinding(words, "", [(said.mark, "the slot is emptied")], "warning", "high")]


RULE = kit.rule(
    __name__,
    "The request switched prompt caching off",
    decide,
    PROOF,
    say,
    needs=lambda s: (
        None
        if s.at_least(6629) is not False
        else (
            "b6628 and older do not print how much of a new prompt the slot holds",
            "use b6751 or newer, or pass the request bodies",
        )
    ),
    unless=("CD111",),
    alone=alone,
    stated=("unasked",),
)
