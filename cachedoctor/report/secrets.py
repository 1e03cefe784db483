"""Hides what looks like a secret in a quoted text: keys, passwords, mail addresses, names of users in paths.

Knows how secrets look. Knows no report. What it does not know it shows; ``cachedoctor redact`` hides whole logs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_BAR = r"(?P<bar> \| [\w.-]+)?"
"""A server that prints where two prompts diverge may print its bar inside a key."""
_MIXED = 40
"""Characters of letters of both cases and digits that are taken for a key; of hexadecimal digits 32 are enough."""
_Hide = Callable[["re.Match[str]"], str]


def _key(found: re.Match[str]) -> str:
    return f"{found['kind']}<key>" + (" | <key>" if found["bar"] else "")


def _long(found: re.Match[str]) -> str:
    text = found[0]
    mixed = all(re.search(kind, text) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return f"{text[:4]}<key>" if (mixed and len(text) >= _MIXED) or re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", text) else text


_PREFIXED = (
    r"\b(?P<kind>sk-(?:ant-|proj-|or-)?|[sr]k_(?:live|test)_|hf_|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|AIza|npm_|pypi-"
    r"|gsk_|r8_|nvapi-|ya29\.|glrt-|xai-|whsec_|pplx-|SG\.|dop_v1_|shpat_|lin_api_)[\w-]{6,}(?:\.[\w-]{1,200}){0,2}"
)
_VALUE = r"(?:[^\s\"',;\\]|\\(?![\"'])){4,}"
"""A value up to its end; in JSON that is quoted once more, the end is an escaped quote."""
_SCHEMES = r"bearer |basic |token |apikey |digest |negotiate "
_NAMED = (
    r"((?:\b|_|--)(?:api[-_ ]?key|access[-_ ]?key|secret(?:[-_ ]?key)?|auth[-_ ]?token|token|password|passwd|pwd"
    r"|passphrase|authorization|set-cookie|cookie)\b\\{0,3}[\"']?(?:\s{0,3}[=:]\s{0,3}|(?<=key)\s)\\{0,3}[\"']?)"
    r"(?!\d{1,9}\b|<|" + _SCHEMES + r")" + _VALUE
)
# clientSecret=, PGPASSWORD=, private_key: names of settings in programs
_SETTING = (
    r"(\b[A-Za-z]\w{0,40}(?:Secret|Password|Passwd|ApiKey|AccessKey|PrivateKey|[a-z]Token|PASSWORD|SECRET|_TOKEN|_KEY|_key)"
    r"\\{0,3}[\"']?\s{0,3}[=:]\s{0,3}\\{0,3}[\"']?)(?!\d{1,9}\b|<)" + _VALUE
)
_OPTION = r"(--(?:hf-)?(?:token|password|api-key|secret|key)\s{1,3})(?![<-]|\d{1,9}\b)[^\s\"',;]{4,}"
_QUERY = r"([?&;](?:key|sig|signature|token|auth|access_token|x-amz-signature)=)(?!<)[^\s&\"'<>]{4,}"
_SCHEME = r"(\bauthorization\b\W{1,4}(?:" + _SCHEMES + r"))(?!<)[^\s\"',;]{6,}"
_HOOK = r"(\bhooks\.slack\.com/services/|\bdiscord(?:app)?\.com/api/webhooks/|\bapi\.telegram\.org/bot)(?!<)[\w/:-]{6,}"
_PEM = r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"
_WINDOWS = r"(\b[a-z]:(?:\\{1,2}|/)(?:users|documents and settings)(?:\\{1,2}|/))(?!<)[^\\/'\"]+"
_PATTERNS: list[tuple[re.Pattern[str], str | _Hide]] = [
    (re.compile(_PEM, re.S), "<key>"),
    (re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]*){0,2}" + _BAR), "<token>"),
    (re.compile(_PREFIXED + _BAR), _key),
    (re.compile(r"\b(?P<kind>AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{12,}" + _BAR), _key),
    (re.compile(r"\b((?:bearer|basic)\s+)(?!<)[\w.~+/=-]{6,}", re.I), r"\1<token>"),
    (re.compile(r"(\b\w{1,20}://)[^\s/@:]{0,200}(:)[^\s\"'<>]{1,200}@(?=[\w\[])"), r"\1<user>\2<password>@"),
    (re.compile(_NAMED, re.I), r"\1<secret>"),
    (re.compile(_SETTING), r"\1<secret>"),
    (re.compile(_OPTION), r"\1<secret>"),
    (re.compile(_QUERY, re.I), r"\1<secret>"),
    (re.compile(_SCHEME, re.I), r"\1<token>"),
    (re.compile(_HOOK), r"\1<secret>"),
    (re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}\b"), "<mail>"),
    (re.compile(r"(/home/|/Users/)(?!<)[^/\s'\"]+(?: [^/\s'\"]+(?=/))*"), r"\1<user>"),
    (re.compile(r"(%2F(?:home|Users)%2F)(?!<)(?:(?!%2F)[^\s'\"]){1,200}", re.I), r"\1<user>"),
    (re.compile(_WINDOWS, re.I), r"\1<user>"),
    (re.compile(r"(?<![\w/+.-])[A-Za-z0-9+/]{32,}={0,2}(?![\w/+.-])"), _long),
]


_INSTEAD = re.compile(r"<\w+>\Z")


def parted(pieces: list[str]) -> list[str]:
    """Return the pieces of a text as they may be shown; a secret that lies in several is hidden in each of them."""
    for pattern, instead in _PATTERNS:
        pieces = _across(pieces, pattern, instead)
    return [hidden(piece) for piece in pieces]


def _across(pieces: list[str], pattern: re.Pattern[str], instead: str | _Hide) -> list[str]:
    shown = list(pieces)
    for found in reversed(list(pattern.finditer("".join(pieces)))):  # what stands before a change keeps its place
        new = found.expand(instead) if isinstance(instead, str) else instead(found)
        rest = _INSTEAD.search(new.removesuffix("@"))
        if rest is None:  # it is no secret
            continue
        begin = 0
        for at, piece in enumerate(pieces):
            first, last = max(found.start() - begin, 0), min(found.end() - begin, len(piece))
            if first < last:
                shown[at] = shown[at][:first] + new + shown[at][last:]
                new = rest[0]
            begin += len(piece)
    return shown


def hidden(text: str) -> str:
    """Return ``text`` with whatever looks like a secret replaced by what it is, ``<key>``, ``<user>`` ..."""
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text
