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
index | integer | | number of the request in the table, from 0, in the order in which they started
path | text | | the input, as it was named
session | integer | | run of a server process, from 0
origin | text | | router port or compose service that the lines are of, where several servers wrote one log
engine | text | | llama.cpp
build | integer | | build of the server, where the log or --build says it
build_min | integer | | oldest build that writes all wordings of the log
build_max | integer | | newest build that does
model | text | | name or file of the model, as the log has it
memory | text | | attention, swa, hybrid or recurrent
n_slots | integer | | slots of the server
n_ctx_slot | integer | tokens | context of one slot
slot | integer | | slot that computed it
task | integer | | the server's number of the request
parent | integer | | task of which this is one of the n > 1 choices; sums leave those out
thread | integer | | conversation, numbered in the session
turn | integer | | 0 for the first request of its conversation
first_line | integer | line | first line of it in the file `path`, from 1
last_line | integer | line | last line of it; counted on where it ends in the next rotation of the log
time | text | ISO 8601 | when it started, by the wrapper of its first line; --MM-DDTHH:MM:SS where that has no year
uptime_ms | number | ms | when it started, since the start of the server
client | text | | address that asked, where the log shows it without doubt
endpoint | text | | path of the HTTP request, where the log shows it without doubt
prompt_tokens | integer | tokens | length of the prompt
cached_tokens | integer | tokens | of it reused
processed_tokens | integer | tokens | of it computed
generated_tokens | integer | tokens | length of the reply
derived | names | | columns that were computed from other numbers rather than read
prompt_ms | number | ms | time that the prompt took
selected_by | text | | how the slot was chosen: lcp, lru or id
similarity | number | share | of the new prompt that the slot already held, as the log rounds it
f_keep | number | share | of the slot's content that the new prompt kept, as the log rounds it
common_prefix_tokens | integer | tokens | longest common prefix with what the slot held when processing began
reference_tokens | integer | tokens | prompt and reply of the conversation's previous request, else what the slot held
held_tokens | integer | tokens | what the slot held when the request took it
expected_cached | integer | tokens | what the server's build had to reuse, where tokens were lost
replay_missing | names | | numbers that the log lacks for expected_cached
lost_tokens | integer | tokens | of prompt and reply before, what was not reused; can exceed a prompt that got shorter
client_lost_tokens | integer | tokens | of these, changed by the client
server_lost_tokens | integer | tokens | of these, not reused by the server; null where the slot held another text
avoidable_tokens | integer | tokens | what the fixes of its causes would have saved, each once; 0 where no rule fired
avoidable_ms | number | ms | time that these fixes would have saved
outcome | text | | cold, reused, partial, reprocessed, failed, cancelled or unknown
partial | flag | | the log begins or ends inside of it
codes | names | | rules that fired on it
restored_from_ram | flag | | its prompt came back from the RAM prompt cache
saved_to_ram | flag | | what the slot held was saved to the RAM prompt cache before
checkpoints_tried | integer | | context checkpoints that were checked
checkpoints_restored | integer | | that were restored
checkpoints_created | integer | | that were made
checkpoints_erased | integer | | that were erased
checkpoints_held | spans | position | those that the slot is known to have held, where tokens were lost
checkpoint_pos_min | integer | position | lowest position of the one that was restored
checkpoint_pos_max | integer | position | its highest position
client_by | text | | what names the client: session, user, salt or system_prompt of its body, route or address
client_name | text | | the client, by the surest of these; salts and system prompts are hashed
"""),
)
"""One row per request: ``model.RequestRow``, with what is known of its session."""

EVENTS = ColumnTable(
    "events",
    "cachedoctor.events/1",
    _columns("""
path | text | | the input, as it was named
line | integer | line | number of the line, from 1
origin | text | | router port or compose service that the line is of
time | text | ISO 8601 | time of the line by its wrapper, else as the line prints it; --MM-DDTHH:MM:SS without a year
uptime_ms | number | ms | clock of the line, since the start of the server
level | text | | I, W, E, D or T, where the line has one
slot | integer | | slot that it names
task | integer | | request that it names
message | text | | id of the message in the catalogue
fields | text | JSON | its values by name; texts are cut, secrets hidden
engine | text | | whose message it is, by the name that reports use
process | text | | process that wrote it, or its ranks, where a line names them
"""),
)
"""One row per line that is a message of the server, read by analyze or not."""

_SERVER = """
path | text | | the input, as it was named
line | integer | line | number of the line, from 1
session | integer | | run of a server process, from 0
origin | text | | router port or compose service that the line is of
version | text | | of the server, where the log shows it
model | text | | name of the model, as the log has it
memory | text | | attention, swa, hybrid or recurrent
"""

SAMPLES = ColumnTable(
    "samples",
    "cachedoctor.samples/1",
    _columns(
        _SERVER
        + """engine | text | | engine of the server, as the line names it
time | text | ISO 8601 | time of the line; --MM-DDTHH:MM:SS where no year is written
interval_s | number | s | what the rates are over
prompt_rate | number | tokens/s | prompt tokens; whether reused ones count depends on the version, as the two sums say
generation_rate | number | tokens/s | tokens of replies
running | integer | requests | that were computed
waiting | integer | requests | that waited
deferred | integer | requests | that were deferred
kv_usage | number | share | of the KV cache that running requests held; what is cached and free counts as unused
hit_rate | number | share | reused, of the tokens looked up by the last 1,000 requests since the start or a reset
external_hit_rate | number | share | of a cache outside, in the same way
mm_hit_rate | number | share | of the cache of images and the like, by items and not tokens
preemptions | integer | | counted in the line
prompt_tokens | integer | tokens | prompt_rate x interval_s of versions that count reused tokens
computed_tokens | integer | tokens | prompt_rate x interval_s of versions that count computed tokens alone
looked_up_tokens | integer | tokens | looked up since the sample before: computed / (1 - hit rate), by difference
looked_up_within | integer | tokens | by which looked_up_tokens may be off
answered | integer | requests | answered since the sample before, by all engines of the server
"""
    ),
)
"""One row per statistics line of vLLM: ``model.CacheSample``."""

BATCHES = ColumnTable(
    "batches",
    "cachedoctor.batches/1",
    _columns(
        _SERVER
        + """rank | text | | rank of the scheduler, as the line names it
time | text | ISO 8601 | time of the line, in the zone of the server
new_seqs | integer | requests | in the batch, one that continues the batch before included
new_tokens | integer | tokens | computed; rounded up to whole pages before 0.5.20
cached_tokens | integer | tokens | reused by the requests that were admitted in the batch
token_usage | number | share | of the KV pool in use
swa_usage | number | share | of the pool of sliding windows in use
mamba_usage | number | share | of the pool of recurrent states in use
running | integer | requests | that were computed
queue | integer | requests | that waited
pending_tokens | integer | tokens | that waited to be computed
continues | flag | | it continues a prompt that the batch before could not finish, and reuses nothing by itself
whole | flag | | it holds exactly one request from begin to end: its prompt is new_tokens + cached_tokens
"""
    ),
)
"""One row per prefill batch of SGLang: ``model.PrefillBatch``."""

TABLES: dict[str, ColumnTable] = {table.name: table for table in (REQUESTS, SAMPLES, BATCHES, EVENTS)}

_BUILD = """
engine | text | | by the name that reports use
build | integer | | build of llama-server, where the log or --build says it
build_min | integer | | oldest build that writes all wordings of the log
build_max | integer | | newest build that does
version | text | | of another server, where the log shows it
model | text | | name or file of the model, as the log has it
memory | text | | attention, swa, hybrid or recurrent
"""

FINDINGS = ColumnTable(
    "findings",
    "cachedoctor.findings/1",
    _columns(
        """
log | text | | the log, all its rotations together: the name without what a rotation adds
path | text | | the input, as it was named
origin | text | | router port or compose service that it is about
session | integer | | run of a server process that its first proof is of, from 0 in each log
"""
        + _BUILD.lstrip()
        + """code | text | | the rule
name | text | | of the rule
key | text | | cause, where a code has several
severity | text | | error, warning or note
confidence | text | | high, medium or low
requests | integer | | all that it hit
tokens | integer | tokens | what the fix would have saved
ms | number | ms | time that this fix would have saved
line | integer | line | that proves it
claim | text | | what happened, with its numbers
why | text | | why the cache could not be used
fix | text | | the first thing to do
commands | names | | to be copied, of the first thing to do
json | text | JSON | the whole finding, as the JSON report has it
"""
    ),
)
"""One row per finding of a log: ``model.Finding``."""

SESSIONS = ColumnTable(
    "sessions",
    "cachedoctor.sessions/1",
    _columns(
        """
log | text | | the log, all its rotations together
path | text | | the input, as it was named
origin | text | | router port or compose service that the lines are of
session | integer | | run of a server process, from 0 in each log
"""
        + _BUILD.lstrip()
        + """n_slots | integer | | slots of the server
n_ctx_slot | integer | tokens | context of one slot
requests | integer | | of this run
first_line | integer | line | first line of it in the log, from 1
last_line | integer | line | last line of it
json | text | JSON | the whole session, with its settings, as the JSON report has it
"""
    ),
)
"""One row per run of a server: ``model.Session``."""

UNSEEN = ColumnTable(
    "not_evaluated",
    "cachedoctor.not_evaluated/1",
    _columns("""
log | text | | the log, all its rotations together
code | text | | a rule that this log could not have shown
name | text | | of the rule
reason | text | | why not
enable | text | | what would make it possible
"""),
)
"""One row per rule that a log could not have shown: ``model.NotEvaluated``."""

FILES = ColumnTable(
    "files",
    "cachedoctor.files/1",
    _columns("""
path | text | | the file, as it was found; a path below which nothing was found stands for itself
log | text | | the log that it is a part of: the name without what a rotation adds
part | text | | name of the files of this log in the other folders, without their endings
status | text | | read, cut (not to its end), failed (nothing was read) or no log (of a server)
reason | text | | why it is not read, or no log; of one that is read, that it changed meanwhile
size | integer | bytes | as it is stored
stamp | text | | time of its last change in ns, or what the object store calls this content
bytes | integer | bytes | unpacked
lines | integer | line | how many
recognised | integer | line | of these, known messages
engine | text | | the one that wrote most of it
seconds | number | s | that the whole log took
version | text | | of cachedoctor
options | text | | of cachedoctor that have a say in the result
report | text | | page of the log, from the folder of the result
"""),
)
"""One row per file, whatever became of it."""

FLEET: dict[str, ColumnTable] = {
    table.name: table for table in (REQUESTS, FINDINGS, SESSIONS, FILES, UNSEEN, SAMPLES, BATCHES)
}
"""What ``fleet`` writes: a folder each, a file for each log."""
