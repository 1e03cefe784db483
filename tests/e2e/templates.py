"""Renders the scripts of ``lint --template`` here and on a real llama-server, with each template of the fixtures.

Exit status 1 where the two differ, but for what ``KNOWN`` lists.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from cachedoctor.doctor.linting.template_trial import _TOOL, SCRIPTS
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.render.render import with_template
from cachedoctor.prompts.render.templates import chat_template
from cachedoctor.prompts.request_bodies import prompts_of
from e2e import models
from e2e.server import Server

TEMPLATES = Path(__file__).resolve().parents[2] / "fixtures" / "templates"
BUILD = 11549
KNOWN = {
    "gemma-4": "takes arguments of calls as text and as objects: b11549 sends objects, older ones text, as we do",
    "qwen3.6": "knows preserve_thinking, which b11549 sets where a request does not say",
}
_MARKS = re.compile(r"<\|endoftext\|>|<\|im_end\|>|</s>|\d{4}-\d\d-\d\d|\d\d [A-Z][a-z]{2} 20\d\d")
"""Marks of beginning and end, which are the model's, and the day."""


def bodies() -> dict[str, dict[str, Any]]:
    """Both requests of each script."""
    found = {}
    for script in SCRIPTS:
        for side, messages in (("earlier", script.earlier), ("later", script.later)):
            body: dict[str, Any] = {"messages": messages}
            body |= {"tools": [_TOOL]} if script.tools else {}
            body |= {"chat_template_kwargs": script.kwargs} if script.kwargs else {}
            found[f"{script.name}, {side}"] = body
    return found


def here(path: Path, body: dict[str, Any]) -> str | None:
    """Render without a server; None where the template refuses it."""
    try:
        (prompt,) = prompts_of(body, "openai-chat", "script")
        return with_template(prompt, chat_template(str(path)), mask_cch=False).text
    except CacheDoctorError:
        return None


def there(server: Server, body: dict[str, Any]) -> str | None:
    """Let the server render; None where it refuses."""
    status, answer = server.post("/apply-template", body)
    return str(answer["prompt"]) if status == 200 else None


def differing(path: Path, folder: Path) -> list[str]:
    """Names of the scripts that the two render in different ways."""
    model = models.dense().save(folder / "model.gguf")
    options = ["-c", "4096", "-np", "1", "--jinja", "--chat-template-file", str(path)]
    with Server(BUILD, model, options, {}, folder / "server.log") as server:
        pairs = {name: (here(path, body), there(server, body)) for name, body in bodies().items()}
    return [name for name, pair in pairs.items() if len({p and _MARKS.sub("", p) for p in pair}) > 1]


def main() -> int:
    """Try every template."""
    wrong = 0
    for path in sorted(TEMPLATES.glob("*.jinja")):
        with tempfile.TemporaryDirectory(prefix="cachedoctor-templates-") as folder:
            found = differing(path, Path(folder))
        wrong += bool(found) != (path.stem in KNOWN)
        said = "the same" if not found else f"differs in {', '.join(found)}"
        print(f"{path.stem}: {said}{f' ({KNOWN[path.stem]})' if path.stem in KNOWN else ''}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
