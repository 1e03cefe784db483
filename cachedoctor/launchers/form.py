"""Options in the form of any launcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from cachedoctor.launchers import program_forms, shell_form, unit_form
from cachedoctor.launchers.asked_options import Asked
from cachedoctor.model import FixStep, Launcher

_FORMS: dict[Launcher, Callable[[Asked], list[FixStep]]] = {
    "shell": shell_form.shell,
    "docker": shell_form.docker,
    "systemd": unit_form.systemd,
}


def form(asked: Asked, launcher: Launcher | None) -> tuple[list[FixStep], list[str]]:
    """(steps, what cannot be set there); what is started in a way that is not known is started from a shell."""
    if not asked.changes:
        return [], []
    if launcher == "ollama":
        return program_forms.ollama(asked)
    if launcher == "lm-studio":
        return program_forms.lm_studio(asked)
    if launcher == "jan":
        return program_forms.jan(asked)
    if launcher in ("compose", "kubernetes", "llama-swap"):
        return _yaml(asked, launcher), []
    return _FORMS[launcher or "shell"](asked), []


def _yaml(asked: Asked, launcher: Literal["compose", "kubernetes", "llama-swap"]) -> list[FixStep]:
    from cachedoctor.launchers import yaml_forms

    if launcher == "compose":
        return yaml_forms.compose(asked)
    return yaml_forms.kubernetes(asked) if launcher == "kubernetes" else yaml_forms.llama_swap(asked)
