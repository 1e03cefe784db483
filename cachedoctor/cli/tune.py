"""``cachedoctor tune``: which settings would have saved most. Knows arguments; knows no replay."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import typer

from cachedoctor.cli import terminal, whatif_inputs
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


def tune(
    ctx: typer.Context,
    paths: whatif_inputs.Inputs,
    memory: Annotated[
        int | None,
        typer.Option(
            parser=terminal.size,
            metavar="SIZE",
            help="What the changes together may take more than now, e.g. 24GiB.  [default: no limit]",
        ),
    ] = None,
    said: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="What ran and the log does not say: an option without its dashes, or memory=swa; repeatable.",
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
    """Rank settings of the server by the prompt tokens and seconds that they would have saved, and merge the best.

    Single changes come first, with what each takes in memory as far as the log prints sizes; then the merged set, in
    the form of the command line. Only what surely helps is listed: more than the replay's own error, and than 1 %.

    Exit status: 0 searched, also when there is nothing to gain; 2 wrong usage or an unreadable input; 3 the replay does
    not explain the log, or there is nothing to replay; 130 interrupted.
    """
    from cachedoctor.doctor.whatif.tuning import tune as search
    from cachedoctor.report.forms import whatif_forms

    limit_mib = None if memory is None else memory / (1 << 20)
    whatif_inputs.run(
        paths,
        whatif_inputs.Beside(prompts, requests, tokenizer, template, build, cmdline, max_unpacked, responses),
        whatif_inputs.Output(output, quiet, color, width),
        lambda found: search(found, paths, limit_mib, said or []),
        partial(whatif_forms.write_tuning, by_name(ctx, format, output, whatif_forms.FORMATS)),
    )
