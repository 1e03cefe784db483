"""The columns of every table, with their units: what ``analyze -o requests.csv`` writes, and what docs/tables.md says.

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
    """Empty where there is none."""
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
index | integer | | number of the request in the table, from 0, in order of start
path | text | | input file, as given
session | integer | | number of the server run, from 0
origin | text | | router port or compose service, if a wrapper names one
engine | text | | always llama.cpp
build | integer | | build of llama-server, if the log or --build shows it
build_min | integer | | oldest build that prints all messages of the log
build_max | integer | | newest such build
model | text | | name or file of the model, as in the log
memory | text | | attention, swa, hybrid or recurrent
n_slots | integer | | slots of the server
n_ctx_slot | integer | tokens | context of one slot
slot | integer | | slot that computed the request
task | integer | | the server's number of the request
parent | integer | | task of which this is one of the n > 1 choices; not included in sums
thread | integer | | number of the conversation in the session
turn | integer | | 0 for the first request of its conversation
first_line | integer | line | its first line in the file `path`, from 1
last_line | integer | line | its last line; counting continues if that is in the next rotation of the log
time | text | ISO 8601 | start, by the wrapper of its first line; --MM-DDTHH:MM:SS without a year
uptime_ms | number | ms | its start, since the start of the server
client | text | | address of the client, if the log shows it without doubt
endpoint | text | | path of the HTTP request, if the log shows it without doubt
prompt_tokens | integer | tokens | length of the prompt
cached_tokens | integer | tokens | reused tokens of the prompt
processed_tokens | integer | tokens | computed tokens of the prompt
generated_tokens | integer | tokens | length of the reply
derived | names | | columns calculated from other numbers, not read
prompt_ms | number | ms | time to compute the prompt
selected_by | text | | how the slot was chosen: lcp, lru or id
similarity | number | share | share of the new prompt that the slot already held, as printed
f_keep | number | share | share of the slot's content that the new prompt kept, as printed
common_prefix_tokens | integer | tokens | longest common prefix with the slot's content when processing began
reference_tokens | integer | tokens | prompt and reply of the conversation's previous request, else what the slot held
held_tokens | integer | tokens | content of the slot when the request took it
expected_cached | integer | tokens | what the server's build should have reused, if tokens were lost
replay_missing | names | | numbers missing from the log for expected_cached
lost_tokens | integer | tokens | tokens of the previous prompt and reply not reused; can exceed a shorter prompt
client_lost_tokens | integer | tokens | lost tokens changed by the client
server_lost_tokens | integer | tokens | lost tokens not reused by the server; null if the slot held another text
avoidable_tokens | integer | tokens | tokens the fixes of its causes would have saved, each once; 0 if no rule fired
avoidable_ms | number | ms | time that these fixes would have saved
outcome | text | | cold, reused, partial, reprocessed, failed, cancelled or unknown
partial | flag | | the log begins or ends inside the request
codes | names | | rules that fired on it
restored_from_ram | flag | | its prompt came back from the RAM prompt cache
saved_to_ram | flag | | the slot's content was saved to the RAM prompt cache first
checkpoints_tried | integer | | context checkpoints checked
checkpoints_restored | integer | | context checkpoints restored
checkpoints_created | integer | | context checkpoints created
checkpoints_erased | integer | | context checkpoints erased
checkpoints_held | spans | position | checkpoints the slot is known to have held, if tokens were lost
checkpoint_pos_min | integer | position | lowest position of the restored checkpoint
checkpoint_pos_max | integer | position | highest position of the restored checkpoint
client_by | text | | what identifies the client: session, user, salt or system_prompt of its body, route or address
client_name | text | | name of the client; salts and system prompts are hashed
"""),
)
"""One row per request: ``model.RequestRow``, with what is known of its session."""

EVENTS = ColumnTable(
    "events",
    "cachedoctor.events/1",
    _columns("""
path | text | | input file, as given
line | integer | line | line number, from 1
origin | text | | router port or compose service, if a wrapper names one
time | text | ISO 8601 | time of the line: of the wrapper, else its own; --MM-DDTHH:MM:SS without a year
uptime_ms | number | ms | time of the line since the start of the server
level | text | | I, W, E, D or T, if the line has one
slot | integer | | slot named in the line
task | integer | | request named in the line
message | text | | id of the message in the catalogue
fields | text | JSON | its values by name; texts truncated, secrets redacted
engine | text | | server that prints this message, as named in reports
process | text | | process that wrote the line, or its ranks, if named there
"""),
)
"""One row per line that is a message of the server, read by analyze or not."""

_SERVER = """
path | text | | input file, as given
line | integer | line | line number, from 1
session | integer | | number of the server run, from 0
origin | text | | router port or compose service, if a wrapper names one
version | text | | version of a server other than llama-server, if the log shows it
model | text | | name or file of the model, as in the log
memory | text | | attention, swa, hybrid or recurrent
"""

SAMPLES = ColumnTable(
    "samples",
    "cachedoctor.samples/1",
    _columns(
        _SERVER
        + """engine | text | | engine of the server, as in the line
time | text | ISO 8601 | time of the line; --MM-DDTHH:MM:SS without a year
interval_s | number | s | length of the interval of the rates
prompt_rate | number | tokens/s | prompt tokens per second; whether reused ones count depends on the version
generation_rate | number | tokens/s | reply tokens per second
running | integer | requests | requests being computed
waiting | integer | requests | requests waiting
deferred | integer | requests | requests deferred
kv_usage | number | share | share of the KV cache held by running requests; cached but free blocks count as unused
hit_rate | number | share | share reused of the tokens looked up by the last 1,000 requests since the start or a reset
external_hit_rate | number | share | the same of an external cache
mm_hit_rate | number | share | the same of the multimodal cache (images and similar), in items, not tokens
preemptions | integer | | preemptions counted in the line
prompt_tokens | integer | tokens | prompt_rate x interval_s, for versions whose rate includes reused tokens
computed_tokens | integer | tokens | prompt_rate x interval_s, for versions whose rate has only computed tokens
looked_up_tokens | integer | tokens | looked up since the previous sample: computed / (1 - hit rate), by difference
looked_up_within | integer | tokens | error bound of looked_up_tokens
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
        + """rank | text | | rank of the scheduler, as in the line
time | text | ISO 8601 | time of the line, in the server's time zone
new_seqs | integer | requests | requests in the batch, including one continued from the previous batch
new_tokens | integer | tokens | tokens computed; rounded up to whole pages before 0.5.20
cached_tokens | integer | tokens | tokens reused by the requests admitted in the batch
token_usage | number | share | share of the KV pool in use
swa_usage | number | share | share of the sliding-window pool in use
mamba_usage | number | share | share of the pool of recurrent states in use
running | integer | requests | requests being computed
queue | integer | requests | requests waiting
pending_tokens | integer | tokens | tokens waiting to be computed
continues | flag | | continues a prompt that the previous batch could not finish; reuses nothing itself
whole | flag | | holds exactly one whole request: its prompt is new_tokens + cached_tokens
"""
    ),
)
"""One row per prefill batch of SGLang: ``model.PrefillBatch``."""

TABLES: dict[str, ColumnTable] = {table.name: table for table in (REQUESTS, SAMPLES, BATCHES, EVENTS)}

_BUILD = """
engine | text | | server program, as named in reports
build | integer | | build of llama-server, if the log or --build shows it
build_min | integer | | oldest build that prints all messages of the log
build_max | integer | | newest such build
version | text | | version of a server other than llama-server, if the log shows it
model | text | | name or file of the model, as in the log
memory | text | | attention, swa, hybrid or recurrent
"""

FINDINGS = ColumnTable(
    "findings",
    "cachedoctor.findings/1",
    _columns(
        """
log | text | | name of the log, without what rotation adds; all rotations are one log
path | text | | input file, as given
origin | text | | router port or compose service, if a wrapper names one
session | integer | | server run of its first proof, from 0 in each log
"""
        + _BUILD.lstrip()
        + """code | text | | code of the rule
name | text | | name of the rule
key | text | | cause, if the code has several
severity | text | | error, warning or note
confidence | text | | high, medium or low
requests | integer | | number of affected requests
tokens | integer | tokens | tokens that the fix would have saved
ms | number | ms | time that the fix would have saved
line | integer | line | line that proves it, from 1
claim | text | | what happened, with its numbers
why | text | | why the cache could not be used
fix | text | | the first thing to do
commands | names | | commands for that, to copy
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
log | text | | name of the log, without what rotation adds; all rotations are one log
path | text | | input file, as given
origin | text | | router port or compose service, if a wrapper names one
session | integer | | number of the server run, from 0 in each log
"""
        + _BUILD.lstrip()
        + """n_slots | integer | | slots of the server
n_ctx_slot | integer | tokens | context of one slot
requests | integer | | requests of this run
first_line | integer | line | its first line in the log, from 1
last_line | integer | line | its last line in the log
json | text | JSON | the whole session with its settings, as in the JSON report
"""
    ),
)
"""One row per run of a server: ``model.Session``."""

UNSEEN = ColumnTable(
    "not_evaluated",
    "cachedoctor.not_evaluated/1",
    _columns("""
log | text | | name of the log, without what rotation adds; all rotations are one log
code | text | | code of the rule
name | text | | name of the rule
reason | text | | why it was not checked
enable | text | | how to check it
"""),
)
"""One row per rule that a log could not have shown: ``model.NotEvaluated``."""

FILES = ColumnTable(
    "files",
    "cachedoctor.files/1",
    _columns("""
path | text | | file, as found; a given path if nothing was found below it
log | text | | name of the log, without what rotation adds; all rotations are one log
part | text | | name of this log's files in the other folders, without their endings
status | text | | read, cut (incomplete), failed (not read) or no log (not of a server)
reason | text | | reason for any other status than read, or that a read file changed meanwhile
size | integer | bytes | size as stored
stamp | text | | modification time in ns, or the object store's version of the content
bytes | integer | bytes | size unpacked
lines | integer | line | number of lines
recognised | integer | line | lines with a known message
engine | text | | server program that wrote most of it
seconds | number | s | time to read the whole log
version | text | | version of cachedoctor
options | text | | options of cachedoctor that affect the result
report | text | | report of the log, relative to the result folder
"""),
)
"""One row per file, whatever became of it."""

FLEET: dict[str, ColumnTable] = {
    table.name: table for table in (REQUESTS, FINDINGS, SESSIONS, FILES, UNSEEN, SAMPLES, BATCHES)
}
"""What ``fleet`` writes: a folder each, a file for each log."""
