"""The columns of every table, with their units, for ``analyze -o requests.csv`` and docs/tables.md.

Imports no polars, so that the command line can ask for the endings.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["integer", "number", "text", "flag", "names", "spans"]
"""64-bit integer, 64-bit float, text, true or false, list of texts, list of {pos_min, pos_max}."""
Ending = Literal["parquet", "csv", "ndjson"]
ENDINGS: tuple[Ending, ...] = ("parquet", "csv", "ndjson")


class TableColumn(NamedTuple):
    """One column of a table; what is unknown is null, never 0."""

    name: str
    kind: Kind
    unit: str
    """Empty if there is none."""
    words: str


class ColumnTable(NamedTuple):
    """A table and the version of its columns; within a version columns are only added."""

    name: str
    schema: str
    columns: tuple[TableColumn, ...]


def _columns(text: str) -> tuple[TableColumn, ...]:
    rows = [[cell.strip() for cell in line.split("|")] for line in text.strip().split("\n")]
    kinds: dict[str, Kind] = {
        "integer": "integer", "number": "number", "text": "text", "flag": "flag", "names": "names", "spans": "spans",
    }  # fmt: skip
    return tuple(TableColumn(name, kinds[kind], unit, words) for name, kind, unit, words in rows)


REQUESTS = ColumnTable(
    "requests",
    "cachedoctor.requests/1",
    _columns("""
index | integer | | number of the request in the table, from 0, by start time
path | text | | input file, as given
session | integer | | server run, numbered from 0
origin | text | | router port or compose service, if a wrapper shows it
engine | text | | llama.cpp
build | integer | | llama-server build, from the log or --build
build_min | integer | | oldest build that can have written all messages of the log
build_max | integer | | newest such build
model | text | | model name or file, as printed in the log
memory | text | | kind of model memory: attention, swa, hybrid or recurrent
n_slots | integer | | server slots
n_ctx_slot | integer | tokens | context size of one slot
slot | integer | | slot that served the request
task | integer | | the server's task number for the request
parent | integer | | for a choice of a request with n > 1: task number of the request; totals leave out such rows
thread | integer | | conversation number within the session
turn | integer | | turn number within the conversation, from 0
first_line | integer | line | number of the request's first line in the file `path`, counted from 1
last_line | integer | line | the request's last line; line numbers continue if the request ends in the next rotation
time | text | ISO 8601 | start time, from the first line's wrapper; --MM-DDTHH:MM:SS if it has no year
uptime_ms | number | ms | start time, counted from the server start
client | text | | client address, if the log shows it unambiguously
endpoint | text | | path of the HTTP request, if the log shows it unambiguously
prompt_tokens | integer | tokens | prompt length
cached_tokens | integer | tokens | reused prompt tokens
processed_tokens | integer | tokens | computed prompt tokens
generated_tokens | integer | tokens | reply length
derived | names | | columns whose values were computed, not read from the log
prompt_ms | number | ms | prompt processing time
selected_by | text | | how the slot was chosen: lcp, lru or id
similarity | number | share | share of the new prompt that the slot already contained, rounded as in the log
f_keep | number | share | share of the slot's content that the new prompt kept, rounded as in the log
common_prefix_tokens | integer | tokens | longest common prefix of prompt and slot content at request start
reference_tokens | integer | tokens | length of the previous prompt and reply; if unknown, length of the slot's content
held_tokens | integer | tokens | length of the slot's content when the request took the slot
expected_cached | integer | tokens | tokens that the server build should have reused; null unless tokens were lost
replay_missing | names | | numbers that expected_cached needs but the log lacks
lost_tokens | integer | tokens | tokens of the previous prompt and reply not reused; can exceed the new prompt's length
client_lost_tokens | integer | tokens | lost tokens that the client changed
server_lost_tokens | integer | tokens | lost tokens that the server did not reuse; null if the slot contained other text
avoidable_tokens | integer | tokens | tokens that the fixes would have saved, each counted once; 0 without a finding
avoidable_ms | number | ms | prompt time that the fixes would have saved
outcome | text | | result: cold, reused, partial, reprocessed, failed, cancelled or unknown
partial | flag | | the log begins or ends inside the request
codes | names | | rules that have a finding for the request
restored_from_ram | flag | | the prompt was restored from the RAM prompt cache
saved_to_ram | flag | | the slot's old content was first saved to the RAM prompt cache
checkpoints_tried | integer | | context checkpoints checked
checkpoints_restored | integer | | checkpoints restored
checkpoints_created | integer | | checkpoints created
checkpoints_erased | integer | | checkpoints erased
checkpoints_held | spans | position | known checkpoints of the slot; null unless tokens were lost
checkpoint_pos_min | integer | position | lowest position of the restored checkpoint
checkpoint_pos_max | integer | position | highest position of the restored checkpoint
client_by | text | | field that identifies the client: session, user, salt, system_prompt, route or address
client_name | text | | client name from the most reliable field of the request; salts and system prompts are hashed
"""),
)
"""One row per request: ``model.RequestRow``, with what is known of its session."""

EVENTS = ColumnTable(
    "events",
    "cachedoctor.events/1",
    _columns("""
path | text | | input file, as given
line | integer | line | line number, counted from 1
origin | text | | router port or compose service, if a wrapper shows it
time | text | ISO 8601 | time from the wrapper, else from the line; --MM-DDTHH:MM:SS if it has no year
uptime_ms | number | ms | time of the line, counted from the server start
level | text | | log level I, W, E, D or T, if the line has one
slot | integer | | slot number in the line
task | integer | | task number in the line
message | text | | message id in the catalogue
fields | text | JSON | values in the message by name; texts are truncated, secrets redacted
engine | text | | engine that wrote the message, named as in reports
process | text | | process or ranks that wrote the line, if the line shows them
"""),
)
"""One row per line that is a message of the server, read by analyze or not."""

_SERVER = """
path | text | | input file, as given
line | integer | line | line number, counted from 1
session | integer | | server run, numbered from 0
origin | text | | router port or compose service, if a wrapper shows it
version | text | | version of a server other than llama-server, if the log shows it
model | text | | model name or file, as printed in the log
memory | text | | kind of model memory: attention, swa, hybrid or recurrent
"""

SAMPLES = ColumnTable(
    "samples",
    "cachedoctor.samples/1",
    _columns(
        _SERVER
        + """engine | text | | engine name, as printed in the line
time | text | ISO 8601 | time of the line; --MM-DDTHH:MM:SS if it has no year
interval_s | number | s | length of the interval that the rates cover
prompt_rate | number | tokens/s | rate of prompt tokens; only some versions count reused tokens
generation_rate | number | tokens/s | rate of reply tokens
running | integer | requests | running requests
waiting | integer | requests | waiting requests
deferred | integer | requests | deferred requests
kv_usage | number | share | share of the KV cache used by running requests; unused cached blocks count as free
hit_rate | number | share | reused share of looked-up tokens in the last 1,000 requests (fewer after a start)
external_hit_rate | number | share | hit rate of an external cache, counted like hit_rate
mm_hit_rate | number | share | hit rate of the cache for images and other media, counted in items, not tokens
preemptions | integer | | preemptions, as printed in the line
prompt_tokens | integer | tokens | prompt_rate x interval_s, for versions that count reused tokens
computed_tokens | integer | tokens | prompt_rate x interval_s, for versions that count only computed tokens
looked_up_tokens | integer | tokens | tokens looked up since the previous sample: computed / (1 - hit rate)
looked_up_within | integer | tokens | possible error of looked_up_tokens
answered | integer | requests | requests answered since the previous sample, by all engines of the server
"""
    ),
)
"""One row per statistics line of vLLM: ``model.CacheSample``."""

BATCHES = ColumnTable(
    "batches",
    "cachedoctor.batches/1",
    _columns(
        _SERVER
        + """rank | text | | scheduler rank, as printed in the line
time | text | ISO 8601 | time of the line, in the server's time zone
new_seqs | integer | requests | requests in the batch, including one that continues from the previous batch
new_tokens | integer | tokens | computed tokens; before 0.5.20 rounded up to whole pages
cached_tokens | integer | tokens | tokens reused by the requests admitted in the batch
token_usage | number | share | share of the KV pool that running requests use, 0 to 1
swa_usage | number | share | used share of the sliding-window pool, 0 to 1
mamba_usage | number | share | used share of the recurrent-state pool, 0 to 1
running | integer | requests | running requests
queue | integer | requests | waiting requests
pending_tokens | integer | tokens | tokens waiting to be computed
continues | flag | | the batch continues an unfinished prompt of the previous batch and reuses nothing
whole | flag | | the batch contains exactly one complete request; its prompt has new_tokens + cached_tokens tokens
"""
    ),
)
"""One row per prefill batch of SGLang: ``model.PrefillBatch``."""

TABLES: dict[str, ColumnTable] = {table.name: table for table in (REQUESTS, SAMPLES, BATCHES, EVENTS)}

_BUILD = """
engine | text | | engine name, as in reports
build | integer | | llama-server build, from the log or --build
build_min | integer | | oldest build that can have written all messages of the log
build_max | integer | | newest such build
version | text | | version of a server other than llama-server, if the log shows it
model | text | | model name or file, as printed in the log
memory | text | | kind of model memory: attention, swa, hybrid or recurrent
"""

FINDINGS = ColumnTable(
    "findings",
    "cachedoctor.findings/1",
    _columns(
        """
log | text | | name of the log, without rotation suffixes; the same for all its rotations
path | text | | input file, as given
origin | text | | router port or compose service, if a wrapper shows it
session | integer | | number of the server run that contains the first line of proof, counted from 0 in each log
"""
        + _BUILD.lstrip()
        + """code | text | | rule code
name | text | | rule name
key | text | | cause, if the rule has several
severity | text | | error, warning or note
confidence | text | | high, medium or low
requests | integer | | affected requests
tokens | integer | tokens | tokens that the fix would have saved
ms | number | ms | prompt time that the fix would have saved
line | integer | line | line that proves the finding
claim | text | | what happened, with its numbers
why | text | | why the cache could not be used
fix | text | | the first thing to do
commands | names | | commands of the first fix, to copy
json | text | JSON | the whole finding, as in the JSON report
"""
    ),
)
"""One row per finding of a log: ``model.Finding``."""

SESSIONS = ColumnTable(
    "sessions",
    "cachedoctor.sessions/1",
    _columns(
        """
log | text | | name of the log, without rotation suffixes; the same for all its rotations
path | text | | input file, as given
origin | text | | router port or compose service, if a wrapper shows it
session | integer | | server run, numbered from 0
"""
        + _BUILD.lstrip()
        + """n_slots | integer | | server slots
n_ctx_slot | integer | tokens | context size of one slot
requests | integer | | requests in this run
first_line | integer | line | number of the run's first line in the log, counted from 1
last_line | integer | line | the run's last line
json | text | JSON | the whole session with its settings, as in the JSON report
"""
    ),
)
"""One row per run of a server: ``model.Session``."""

UNSEEN = ColumnTable(
    "not_evaluated",
    "cachedoctor.not_evaluated/1",
    _columns("""
log | text | | name of the log, without rotation suffixes; the same for all its rotations
code | text | | code of a rule that was not checked
name | text | | rule name
reason | text | | why the rule was not checked
enable | text | | what would make the check possible
"""),
)
"""One row per rule that a log could not have shown: ``model.NotEvaluated``."""

FILES = ColumnTable(
    "files",
    "cachedoctor.files/1",
    _columns("""
path | text | | path of the file, or the folder or pattern that matched no file
log | text | | name of the log, without rotation suffixes; the same for all its rotations
part | text | | name of this log's files in the result's other folders, without file extension
status | text | | read, cut (read in part), failed (nothing was read) or no log (not a server log)
reason | text | | why the file was not read or is not a server log; or a note that the file changed during the read
size | integer | bytes | size as stored
stamp | text | | time of the last change in ns, or the object store's id for this content
bytes | integer | bytes | size after decompression
lines | integer | line | number of lines
recognised | integer | line | lines with known messages
engine | text | | engine that wrote most of the lines
seconds | number | s | time to analyze the whole log
version | text | | cachedoctor version
options | text | | cachedoctor options that affect the result
report | text | | path of the log's page, relative to the result folder
"""),
)
"""One row per file, whatever its status."""

FLEET: dict[str, ColumnTable] = {
    table.name: table for table in (REQUESTS, FINDINGS, SESSIONS, FILES, UNSEEN, SAMPLES, BATCHES)
}
"""Output of ``fleet``: one folder per table, one file per log."""
