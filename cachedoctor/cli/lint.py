"""``cachedoctor lint``: does each request extend the one before it?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import Output, by_name, option
from cachedoctor.cli.counters import is_address
from cachedoctor.cli.ending import Interrupts
from cachedoctor.cli.sink import Sink, spare_inputs

if TYPE_CHECKING:
    from cachedoctor.doctor.linting.lint_bodies import LintAsk
    from cachedoctor.model import Lint

_APPEND_ONLY, _CHANGED = 0, 1


def lint(
    ctx: typer.Context,
    bodies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BODIES",
            help="Request bodies in the order sent: JSONL, a recording, one file each, or - for standard input.",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        option(
            "--tokenizer",
            "Tokenizer (tokenizer.json, .gguf or http://host:port), which makes counts exact.",
            "FILE|URL",
        ),
    ] = None,
    template: Annotated[
        str | None,
        option(
            "--template",
            "Chat template: .jinja, /props JSON, tokenizer_config.json, .gguf. Without BODIES: check the template.",
            "FILE",
        ),
    ] = None,
    server: Annotated[
        str | None, option("--server", "A running llama-server that renders and tokenises the bodies.", "URL")
    ] = None,
    build: Annotated[
        int | None,
        option("--build", "llama.cpp build that will serve the requests.", "N", parser=terminal.build_number),
    ] = None,
    hash_text: Annotated[bool, option("--hash-text", "Print hashes and lengths instead of prompt text.")] = False,
    format: Annotated[
        Literal["text", "json", "sarif", "github"], option("--format -f", "Format of the result.")
    ] = "text",
    output: Output = None,
) -> None:
    """Check that each request extends the previous request of its conversation, so a cache can serve it.

    Bodies can be OpenAI chat, completions or responses, or Anthropic messages. lint separates conversations
    automatically. An error shows where a request differs, its cost in tokens, and the fix; hints show text that is
    likely to change. Without BODIES, --template (or --server) tests a chat template with scripted conversations.

    Exit status: 0 append-only; 1 errors, or a template that changes earlier text; 2 wrong usage or bad input.
    """
    from cachedoctor.doctor.linting.lint_bodies import LintAsk
    from cachedoctor.report.forms.lint_forms import FORMATS, write

    chosen = by_name(ctx, format, output, FORMATS)
    paths = bodies or []
    spare_inputs(output, [*paths, tokenizer, template])
    if not paths and template is None and server is None and tokenizer is None:
        typer.echo(ctx.get_help(), err=True)
        raise typer.Exit(2)
    found = _answer(paths, LintAsk(tokenizer, template, server, build, hash_text))
    with Interrupts(), Sink(output) as sink, sink.writing() as out:
        write(chosen, found, out, terminal.look(sink.path is not None))
    sys.stdout.flush()
    raise typer.Exit(_APPEND_ONLY if found.append_only else _CHANGED)


def _answer(paths: list[str], ask: LintAsk) -> Lint:
    from cachedoctor.model import CacheDoctorError

    if ask.server is not None and not is_address(ask.server):
        raise CacheDoctorError(f"--server {ask.server}: is not an address", "e.g. --server http://localhost:8080")
    if ask.server is not None and ask.template is not None:
        raise CacheDoctorError(
            "--template and --server: both would render the bodies", "give only one of these two options"
        )
    if not paths:
        from cachedoctor.doctor.linting.template_trial import try_template

        return try_template(ask)
    from cachedoctor.doctor.linting.lint_bodies import lint_requests, read_files
    from cachedoctor.doctor.tables.tables import is_log
    from cachedoctor.prompts.inputs import has_logged_prompts

    for path in paths:
        if path != "-" and is_log(path) and not has_logged_prompts(path):
            from shlex import quote

            raise CacheDoctorError(f"{path}: is a log without request bodies", f"cachedoctor analyze {quote(path)}")
    return lint_requests(read_files(paths), ask)
