"""``cachedoctor simulate``: what would have been reused under other settings. Knows arguments; knows no replay."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import typer

from cachedoctor.cli import whatif_inputs
from cachedoctor.cli.common_options import (
    Build,
    Cmdline,
    ColorOption,
    MaxUnpacked,
    ModelTokenizer,
    Prompts,
    Quiet,
    Requests,
    Template,
    Width,
    by_name,
)


def simulate(
    ctx: typer.Context,
    paths: whatif_inputs.Inputs,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Option of the server without its dashes, e.g. cache-ram=16384, parallel=4, build=9713; repeatable.",
        ),
    ] = None,
    prompts: Prompts = None,
    requests: Requests = None,
    responses: whatif_inputs.Responses = None,
    tokenizer: ModelTokenizer = None,
    template: Template = None,
    build: Build = None,
    cmdline: Cmdline = None,
    format: Annotated[Literal["text", "json"], typer.Option("--format", "-f", help="Format of the answer.")] = "text",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the answer to FILE.")
    ] = None,
    max_unpacked: MaxUnpacked = None,
    quiet: Quiet = False,
    color: ColorOption = "auto",
    width: Width = None,
) -> None:
    """Say what would have been reused under other settings, or by another build, by replay of the server's decisions.

    The replay's own error under the recorded settings comes first. Without a log the recorded settings are the defaults
    of the build; memory=swa (or hybrid, recurrent) and window=N then say what the model is. Logs of vLLM and SGLang
    need --requests and --tokenizer; --responses, or the log's own sums, say what was reused.

    Exit status: 0 replayed; 2 wrong usage, a setting that the build does not know, or an unreadable input; 3 the replay
    does not explain the log, or there is nothing to replay; 130 interrupted.
    """
    from cachedoctor.doctor.whatif.simulation import simulate as replay
    from cachedoctor.report.forms import whatif_forms

    whatif_inputs.run(
        paths,
        whatif_inputs.Beside(prompts, requests, tokenizer, template, build, cmdline, max_unpacked, responses),
        whatif_inputs.Output(output, quiet, color, width),
        lambda found: replay(found, changes or [], paths),
        partial(whatif_forms.write_simulation, by_name(ctx, format, output, whatif_forms.FORMATS)),
    )
