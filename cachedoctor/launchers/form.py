"""Options in the form of any launcher."""

from __future__ import annotations

from collections.abc import Callable

from cachedoctor.launchers import program_forms, shell_form, unit_form, yaml_forms
from cachedoctor.launchers.asked_options import Asked
from cachedoctor.model import FixStep, Launcher

_FORMS: dict[Launcher, Callable[[Asked], list[FixStep]]] = {
    "shell": shell_form.shell,
    "docker": shell_form.docker,
    "compose": yaml_forms.compose,
    "kubernetes": yaml_forms.kubernetes,
    "llama-swap": yaml_forms.llama_swap,
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
    return _FORMS[launcher or "shell"](asked), []
