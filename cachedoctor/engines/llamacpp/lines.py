"""Maps one line of the log to a change of a slot, or of the server's run.

A message is one row of the catalogue and has at most one handler here. Only this module reads ``event.fields``.
"""

from __future__ import annotations

from collections.abc import Callable

from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.reading import Partly, WithOthers
from cachedoctor.engines.llamacpp.client_lines import overlong
from cachedoctor.engines.llamacpp.printed_text import LINE_END
from cachedoctor.engines.llamacpp.server_run import ServerRun
from cachedoctor.engines.llamacpp.slot import Slot
from cachedoctor.engines.llamacpp.startup import STARTUP, StartupLine
from cachedoctor.model import Check, IncidentName, Mark
from cachedoctor.model.observed import Observed, Progressed

Handler = Callable[[ServerRun, Slot, Event, Mark], None]

ON: dict[str, Handler] = {}
"""Message -> its handler."""


def on(*messages: str) -> Callable[[Handler], Handler]:
    """Register the decorated function in ``ON`` for these messages."""

    def enter(handler: Handler) -> Handler:
        ON.update(dict.fromkeys(messages, handler))
        return handler

    return enter


def read(run: ServerRun, event: Event) -> None:
    """Process a line."""
    handler = ON.get(event.message)
    if handler is not None:
        slot = run.slot(event.slot) if event.slot >= 0 else run.chosen or run.slot(0)
        handler(run, slot, event, Mark(event.line, event.text))
    if event.message in STARTUP:
        run.start(StartupLine(event.message, event.fields, event.slot, event.line, event.text))


def is_whole(event: Event) -> bool:
    """Whether a line has exactly the fields of its row: a truncated line may lack some, a fork's line may have more."""
    row, fields = event.row, event.fields
    if isinstance(fields, WithOthers):
        return False
    return row is None or not isinstance(fields, Partly) or fields.keys() == set(row.names)


def answered(run: ServerRun, event: Event) -> None:
    """The HTTP server has answered a request; called only if the log has a line for every request."""
    if run.clients is not None:
        fields = event.fields
        run.clients.answered(fields["method"], str(fields["path"]), str(fields["remote_addr"]))


# ---- the choice of a slot


@on("slot_check_sim")
def _look(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.look(slot, mark, event.fields["lcp_len"], event.fields["n_prompt"])


@on("slot_select_lcp")
def _select_lcp(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.choose(slot, mark, "lcp", event.fields["f_sim_best"], event.fields["f_keep"])


@on("slot_select_lcs")
def _select_lcs(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    """Up to b6628 the share is of the slot's content, and the length is printed."""
    run.choose(slot, mark, "lcp", None, event.fields["similarity"])
    if "thold" in event.fields:
        slot.matched(event.fields["lcs_len"])


@on("slot_select_lru")
def _select_lru(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    t_last = event.fields.get("t_last")
    run.choose(slot, mark, None if t_last is None else "lru", t_last=t_last)


@on("slot_select_id")
def _select_id(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.choose(slot, mark, "id")


@on("slot_skip_empty")
def _skip_empty(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.empty(slot)


@on("lora_clear")
def _lora(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    slot.adapter(mark)


# ---- the RAM prompt cache


def _shares(event: Event) -> tuple[float | None, float | None]:
    fields = event.fields
    return fields["f_keep"], fields["sim" if "sim" in fields else "f_sim"]


@on("pc_looking")
def _ram_search(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    if run.choosing is not None:
        run.choosing.ram_searched(mark, *_shares(event))


@on("pc_found")
def _ram_found(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    if run.choosing is not None:
        run.choosing.ram_found(mark, *_shares(event))


@on("pc_candidate")
def _ram_candidate(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    if run.choosing is not None:
        run.choosing.ram_candidate(mark, event.fields["length"], event.fields["lcp"])


@on("pc_restore_fail", "pc_load_fail")
def _ram_failed(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.ram_failed(event.fields.get("size"), mark)


@on("pc_saving")
def _ram_save(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.save(event.fields["length"], event.fields["size"], mark)


@on("pc_obsolete", "pc_already")
def _ram_contains(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.contains_copy(event.fields.get("length"), mark)


@on("pc_evict_size", "pc_evict_tokens", "pc_make_room", "pc_oversize")
def _ram_evict(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    size = event.fields.get("size", event.fields.get("state_size"))
    run.evict(size, event.fields.get("limit"), mark, oversize=event.message == "pc_oversize")
    if event.message in ("pc_evict_size", "pc_evict_tokens"):  # they leave when the new one is there already
        run.session.sizes.evicted += size or 0.0


@on("pc_state")
def _ram_state(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.ram_state(event.fields["n_prompts"], event.fields["size"])


@on("idle_slot_save")
def _save_idle(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.save_idle(slot, mark)


@on("slot_clear")
def _clear(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.clear(slot, event.fields["n_tokens"], mark, for_task=event.task >= 0)


@on("slot_purge")
def _purge(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.purge(run.slot(event.fields["id_slot"]), event.fields["n_tokens"], mark)


@on("slotfile_restored")
def _slot_file(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    slot.read_file()


# ---- the prompt


@on("launch")
def _launch(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.launched(event.task, event.stamp)
    run.launch(slot, event.task, mark, child=bool(event.fields.get("is_child")))


@on("new_prompt")
def _prompt(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.prompt(slot, event.task, event.fields["n_prompt_tokens"], event.fields["n_ctx_slot"], mark)


@on("input_truncated")
def _cut(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.attend(slot, event.task, mark).record_cut(event.fields["n_prompt_tokens"], mark)


@on("init_sampler")
def _sampler(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.attend(slot, event.task, mark).record_sampler(event.fields["n_total"])


@on("npast_posmin")
def _n_past(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    fields = event.fields
    request = run.attend(slot, event.task, mark)
    known = run.known_length(request, fields["n_cache_tokens"])
    request.record_n_past(fields["n_past"], fields["n_cache_tokens"], fields.get("pos_min"), mark, known)
    run.window(fields.get("n_swa"))


@on("seq_rm")
def _batch(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    cached = event.fields["n_tokens"] if "n_tokens" in event.fields else event.fields["n_past"]
    run.batch(slot, event.task, cached, mark)


@on("progress", "progress_pp")
def _progress(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    fields = event.fields
    request = slot.request_of(event.task) or run.attend(slot, event.task, mark)
    share = fields["progress"]
    if event.message == "progress_pp":
        request.record_progress(Progressed(fields["n_prompt_processed"], share, "computed"))
    elif "n_past" in fields:
        request.record_progress(Progressed(fields["n_past"], share, "unless-reused"))
    else:
        request.record_progress(Progressed(fields["n_tokens"], share, "all"))


@on("truncate_fail")
def _truncate_failed(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    at = event.fields.get("p0", event.fields.get("n_past"))
    run.attend(slot, event.task, mark).record_failed_truncation(at, mark)


@on("force_full")
def _forced(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.attend(slot, event.task, mark)
    slot.force(mark)


@on("cache_reuse_chunk")
def _chunk(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.attend(slot, event.task, mark).record_chunk(event.fields["n_match"])


@on("diff_old", "diff_new")
def _differs(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    text = event.fields.get("str", "").replace(LINE_END.decode(), "\n")
    shown = Mark(mark.line, mark.text.partition(LINE_END)[0])
    run.attend(slot, event.task, shown).record_text(text, shown, old=event.message == "diff_old")


@on("mtmd_encode", "img_processing")
def _image(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    slot.image()


# ---- context checkpoints


def _position(event: Event) -> tuple[int, int]:
    return event.fields["pos_min"], event.fields["pos_max"]


@on("ckpt_check")
def _checked(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    check = Check(*_position(event), event.fields["pos_min_thold"], mark.line, mark.text)
    run.attend(slot, event.task, mark).record_checks([check], 1, mark)


@on("ckpt_restored", "ckpt_restored_swa")
def _restored(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.measure_checkpoint(event.fields.get("size"))
    request, (low, high) = run.attend(slot, event.task, mark), _position(event)
    request.record_restore(low, high, event.fields.get("n_past"), mark, slot.stale(high))


@on("ckpt_created", "ckpt_created_swa")
def _created(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    if run.session.sizes.checkpoint is None:
        run.measure_checkpoint(event.fields.get("size"))
    if not slot.serves(event.task):
        run.attend(slot, event.task, mark)
    # up to b6628 "total = n" says what is left of the list: it drops its oldest, and after a force all, without a word
    limit = event.fields["max" if event.message == "ckpt_created" else "total"]
    slot.created(1, *_position(event), limit, event.line)


@on("ckpt_erased", "ckpt_erased_swa")
def _erased(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.window(event.fields.get("n_swa"))
    run.measure_checkpoint(event.fields.get("size"))
    if event.task >= 0 and not slot.serves(event.task):
        run.attend(slot, event.task, mark)
    slot.erased(mark, _position(event) if event.message == "ckpt_erased" else None, event.fields.get("pos_next"))


@on("ckpt_restore_fail")
def _restore_failed(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    fields = event.fields
    run.measure_checkpoint(fields.get("size"))
    run.attend(slot, event.task, mark).record_failed_restore(fields.get("n_tokens", fields["pos_max"] + 1), mark)


@on("ckpt_abort")
def _restore_aborted(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    if event.fields.get("got", 0) == 0:  # else the checkpoint was being made
        run.restore_failed(mark)


@on("state_load_fail", "state_no_cells")
def _state_failed(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    """What libllama says of a saved state: of a prompt in RAM, a slot file, or the checkpoint that was just taken."""
    run.state("state_failed", mark)
    if any(request.searching for request in run.open_requests()):
        run.restore_failed(mark)


@on("ckpt_erase_old", "ckpt_erase_close")
def _dropped(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    fields = event.fields
    run.measure_checkpoint(fields.get("size"))
    crowded = event.message == "ckpt_erase_close"
    slot.drop(fields.get("n_tokens"), *_position(event), fields["size"], mark, crowded=crowded)


# ---- the end


@on("timing_head")
def _timing_head(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    """The lines below carry no task; a log that begins, or is torn, before them opens the request here."""
    run.timing = slot
    if event.task not in (-1, slot.ended):
        run.attend(slot, event.task, mark)
    slot.answer(event.task, event.line)


def _timed(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> Observed | None:
    """The request that a timing line is about; None for one without prefix whose request is not known."""
    if event.slot >= 0:
        return run.attend(slot, event.task, mark)
    return run.timed(event.fields.get("n_prompt_processed"))


@on("timing_prompt")
def _timing_prompt(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    request = _timed(run, slot, event, mark)
    if request is not None:
        request.record_timing(event.fields["prompt_ms"], event.fields["n_prompt_processed"], mark)


@on("timing_eval")
def _timing_reply(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    request = _timed(run, slot, event, mark)
    if request is None:
        return
    request.record_reply(event.fields["gen_ms"], event.fields["n_gen"], event.line)
    if run.slots[request.slot].released:  # up to b6628 the release comes first
        run.close(run.slots[request.slot])


@on("release")
def _release(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    fields = event.fields
    run.attend(slot, event.task, mark)
    tokens = fields.get("n_tokens", fields.get("n_past", 0))
    if slot.release(tokens, bool(fields["truncated"]), mark):
        run.close(slot)


@on("ctx_shift")
def _shift(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.attend(slot, event.task, mark).record_shift(mark)


@on("cancel")
def _cancel(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    request = run.request_of(event.fields["id_task"])
    if request is not None:
        request.record_cancel(event.line)


@on("task_error")
def _error(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    """An error is sent for a task; an over-long prompt may never have reached a slot."""
    task, error = event.fields["id_task"], overlong(event.fields["error"])
    reached = run.request_of(task)
    request = reached or run.begin_unseen(task, mark)
    if error is None:
        request.record_error(mark, run.bad_batch)
    else:
        request.record_overflow(error.tokens, error.limit, mark)
    if reached is None:
        run.close(run.slots[request.slot])


@on("err_exceed")
def _exceeds(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    """The text of an error as its client got it, without the line of the task."""
    fields = event.fields
    sizes = {"tokens": fields.get("n_tokens"), "limit": fields.get("n_ctx")}
    name: IncidentName = "refused" if overlong(mark.text.decode("utf-8", "replace")) is None else "overflow"
    run.state(name, mark, **{key: value for key, value in sizes.items() if value is not None})


@on("decode_err")
def _undecoded(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    """A batch could not be computed; the lines of the tasks that fail by it come next."""
    refused = event.fields["err"].startswith("Invalid input batch")
    run.state("batch_refused" if refused else "batch_failed", mark)


@on("client_header")
def _header(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.header(event.fields["header"], mark)


@on("prompt_changed")
def _prompt_changed(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    fields = event.fields
    run.prompt_changed(Mark(fields["line"], fields["was"]), mark, fields["kind"], fields["place"])


@on("cache_reuse_unsupported_req")
def _no_chunks(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    """Pieces of a prompt cannot be moved; the common prefix is reused all the same."""
    if run.facts.said("cache_reuse_supported") is None:
        run.set("cache_reuse_supported", False, mark, text=True)


@on("kv_full")
def _kv_full(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    """Up to b5353 the batch fails; later builds try again with smaller ones. Forks say it of every failure."""
    if event.fields["ret"] < 0:
        run.bad_batch = mark
        return
    run.state("batch_failed" if b"failed to decode the batch" in mark.text else "no_room", mark)


@on("mtmd_fail")
def _no_image(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    if event.slot < 0:
        run.state("refused", mark)
        return
    run.attend(slot, event.task, mark).record_error(mark)


@on("pos_inconsistent")
def _positions(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.misplaced(event.fields["seq_id"], mark)


@on("pos_stored")
def _stored_position(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.place(event.fields["seq_id"], stored=event.fields["pos_max"])


@on("pos_batch")
def _batch_position(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.place(event.fields["seq_id"], batch=event.fields["pos"])


@on("server_stops")
def _stopped(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.session.stopped = mark


@on("sleep_enter")
def _sleep(run: ServerRun, slot: Slot, event: Event, mark: Mark) -> None:
    run.sleep(mark)
