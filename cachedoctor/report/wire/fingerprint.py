"""Which findings of two reports are the same one, though the log grew or moved meanwhile.

Knows findings. Knows no format.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from cachedoctor.model import Finding, InputInfo


def fingerprints(findings: list[Finding], inputs: list[InputInfo]) -> list[str]:
    """Give every finding its fingerprint, in their order; they are quoted, so that a stored report has the same.

    It stands for the rule, the cause within the rule, and the server that the wrapper names: not for lines, counts,
    sessions, and not for the name of the log, which rotates and lies elsewhere on another machine. Where several inputs
    of one report have the same finding, those behind the first, in the order of the inputs, carry a number.
    """
    place = {info.path: at for at, info in reversed(list(enumerate(inputs)))}
    order = sorted(enumerate(findings), key=lambda f: place.get(f[1].path or "", len(place)))
    found: dict[int, str] = {}
    seen: Counter[str] = Counter()
    for at, finding in order:
        cause = _cause(finding)
        seen[cause] += 1
        found[at] = cause if seen[cause] == 1 else f"{cause}:{seen[cause]}"
    return [found[at] for at in range(len(found))]


def _cause(finding: Finding) -> str:
    parts = (finding.code, finding.name, finding.key, finding.origin or "")
    # The length of each part keeps "a" + "bc" apart from "ab" + "c".
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
