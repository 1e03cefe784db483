"""The days: which traffic on which server, what is wrong with it by construction, and what fixes it.

One entry is one situation; adding one is described in tests/e2e/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from e2e.days import (
    agencies,
    assistants,
    habits,
    households,
    lookalikes,
    offices,
    pipelines,
    programs,
    services,
    studios,
    traffic,
    workshops,
)
from e2e.days.traffic import Traffic

ALL_KINDS = ("dense", "swa", "hybrid", "recurrent")
GOES_BACK = ("swa", "hybrid", "recurrent")
"""Kinds of memory that need a checkpoint to go back."""
HEALTHY = "none"
RAM_OFF = ("--cache-ram", "0")
SLOT_FILES = ("--slot-save-path", "./")
SEES = ("--mmproj", "mmproj.gguf")
DENSE, SWA = ("dense",), ("swa",)


@dataclass(frozen=True)
class Situation:
    """A day, with and without its fault."""

    name: str
    traffic: Traffic
    options: tuple[str, ...]
    """Of the server on the faulty day, after the model."""
    cause: str = HEALTHY
    """Slug of the main cause; ``none`` where nothing is to be fixed."""
    mended: tuple[str, ...] | None = None
    """Options of the day without the fault, if others; the client has no fault then either."""
    kinds: tuple[str, ...] = ALL_KINDS
    going_back: bool = False
    """Whether a memory that needs checkpoints may lose what plain attention keeps, by what the client rightly does."""

    @property
    def is_faulty(self) -> bool:
        return self.cause != HEALTHY


def slots(count: int, *more: str, each: int = 12288) -> tuple[str, ...]:
    """Options of a server with so many slots of ``each`` tokens."""
    return ("-np", str(count), "-c", str(count * each), *more)


ALL = [
    # ---- the server loses
    Situation("six_on_four", traffic.six_in_turn, slots(4, *RAM_OFF), "slots_taken_ram_off", slots(4)),
    Situation("eight_on_four", traffic.eight_users, slots(4, *RAM_OFF), "slots_taken_ram_off", slots(4)),
    Situation("eight_on_auto", traffic.eight_users, ("-c", "32768", *RAM_OFF), "slots_taken_ram_off", ("-c", "32768")),
    Situation(
        "eight_ram_small", traffic.eight_users, slots(4, "--cache-ram", "1"), "slots_taken_ram_small", slots(4),
    ),
    Situation(
        "eight_auto_ram_small", traffic.eight_users, ("-c", "32768", "--cache-ram", "1"), "slots_taken_ram_small",
        ("-c", "32768"),
    ),
    Situation("three_on_one", traffic.three_users, slots(1, *RAM_OFF), "slots_taken_ram_off", slots(3, *RAM_OFF)),
    Situation("agents_chat_one", traffic.agents_and_chat, slots(1, *RAM_OFF), "slots_taken_ram_off", slots(1)),
    Situation(
        "agents_chat_two", traffic.agents_and_chat, slots(2, *RAM_OFF), "slots_taken_ram_off", slots(4, *RAM_OFF),
    ),
    Situation("sub_agents_one", traffic.sub_agents, slots(1, *RAM_OFF), "slots_taken_ram_off", slots(1)),
    Situation("titles_one", traffic.title_requests, slots(1, *RAM_OFF), "side_requests_ram_off", slots(1)),
    Situation("titles_two", traffic.title_requests, slots(2, *RAM_OFF), "side_requests_ram_off", slots(4, *RAM_OFF)),
    Situation("batch_beside", traffic.batch_beside, slots(2, *RAM_OFF), "slots_taken_ram_off", slots(2)),
    Situation(
        "batch_ram_small", traffic.batch_beside, slots(2, "--cache-ram", "1"), "slots_taken_ram_small", slots(2),
    ),
    Situation("sleeping", traffic.with_pauses, slots(2, "--sleep-idle-seconds", "1"), "slept", slots(2)),
    Situation("restarted", traffic.restarted, slots(3), "restarted"),
    Situation("infill_between", traffic.infill_between, slots(1), "slot_taken_unsaved", slots(2)),
    Situation(
        "embeddings_between", traffic.embeddings_between, slots(1, "--embeddings", "--pooling", "last"),
        "slot_taken_unsaved", slots(2, "--embeddings", "--pooling", "last"),
    ),
    Situation(
        "kv_too_small", traffic.three_users, ("-np", "4", "-kvu", "-c", "8192", *RAM_OFF), "kv_too_small",
        ("-np", "4", "-kvu", "-c", "32768", *RAM_OFF),
    ),
    Situation("sibling_entry", traffic.sibling, slots(1), "sibling_took_ram_entry", slots(3)),
    Situation("sibling_slot", traffic.sibling, slots(3), "slot_shared_by_branches"),
    Situation("support_queue", habits.support_queue, slots(4), "slot_shared_by_branches"),
    Situation("branches", traffic.branches, slots(2), "slot_shared_by_branches"),
    Situation(
        "no_checkpoints", traffic.regenerated, slots(1, "--ctx-checkpoints", "0"), "checkpoints_off", slots(1),
        kinds=GOES_BACK,
    ),
    Situation("intents_first", habits.intents_first, slots(1, *RAM_OFF), "side_requests_ram_off", slots(1)),
    Situation("five_agents", habits.five_agents, slots(2, *RAM_OFF), "slots_taken_ram_off", slots(2)),
    Situation(
        "five_agents_ram_small", habits.five_agents, slots(2, "--cache-ram", "1"), "slots_taken_ram_small", slots(2),
    ),
    Situation(
        "few_checkpoints", habits.earlier_edited, slots(1, "--ctx-checkpoints", "1"), "checkpoints_few", slots(1),
        kinds=GOES_BACK,
    ),
    Situation("restarted_twice", habits.restarted_twice, slots(2), "restarted"),
    Situation("translators", services.translators, slots(2, *RAM_OFF), "slots_taken_ram_off", slots(2)),
    Situation("judge_between", services.judge_between, slots(1, *RAM_OFF), "side_requests_ram_off", slots(1)),
    Situation("long_readers", services.long_readers, slots(1, "--cache-ram", "1"), "slots_taken_ram_small", slots(1)),
    Situation("round_table", assistants.round_table, slots(2, *RAM_OFF), "slots_taken_ram_off", slots(3, *RAM_OFF)),
    Situation("raw_completions", assistants.raw_completions, slots(1, *RAM_OFF), "side_requests_ram_off", slots(1)),
    Situation(
        "four_readers", assistants.four_readers, slots(3, "--cache-ram", "1"), "slots_taken_ram_small", slots(4),
    ),
    Situation(
        "nothing_similar", assistants.nothing_similar, slots(2, "-sps", "0", *RAM_OFF), "similarity_off",
        slots(2, *RAM_OFF),
    ),
    Situation(
        "reports_and_chats", pipelines.reports_and_chats, slots(2, *RAM_OFF), "slots_taken_ram_off", slots(2),
    ),
    Situation("tests_watched", pipelines.tests_watched, slots(2, *RAM_OFF), "side_requests_ram_off", slots(2)),
    Situation("two_books", pipelines.two_books, slots(1, *RAM_OFF), "slots_taken_ram_off", slots(1)),
    Situation(
        "agents_in_one_memory", pipelines.agents_in_one_memory, ("-np", "4", "-kvu", "-c", "7680", *RAM_OFF),
        "kv_too_small", ("-np", "4", "-kvu", "-c", "32768", *RAM_OFF),
    ),
    Situation("five_visitors", offices.five_visitors, slots(2, *RAM_OFF), "slots_taken_ram_off", slots(2)),
    Situation("drafts", offices.drafts, slots(1, "--cache-ram", "1"), "slots_taken_ram_small", slots(1)),
    Situation("three_pinned", offices.three_pinned, slots(3, *RAM_OFF), "slot_pinned", slots(3, *RAM_OFF)),
    Situation("newsroom", studios.newsroom, slots(2, *RAM_OFF), "slots_taken_ram_off", slots(2)),
    Situation("parts_and_whole", studios.parts_and_whole, slots(1, *RAM_OFF), "side_requests_ram_off", slots(1)),
    Situation("long_runs", studios.long_runs, slots(1, "--cache-ram", "1"), "slots_taken_ram_small", slots(1)),
    Situation(
        "parallel_helpers", workshops.parallel_helpers, slots(2, *RAM_OFF), "slots_taken_ram_off", slots(4),
    ),
    Situation("game_master", workshops.game_master, slots(1, "--cache-ram", "1"), "slots_taken_ram_small", slots(1)),
    Situation("pauses_at_work", workshops.pauses_at_work, slots(2, "--sleep-idle-seconds", "1"), "slept", slots(2)),
    Situation("two_teams", agencies.two_teams, slots(3, *RAM_OFF), "slots_taken_ram_off", slots(3)),
    Situation("long_files", agencies.long_files, slots(2, "--cache-ram", "1"), "slots_taken_ram_small", slots(2)),
    Situation("review_and_fix", workshops.review_and_fix, slots(3), "slot_shared_by_branches"),
    Situation(
        "follow_ups_and_tags", programs.follow_ups_and_tags, slots(1, *RAM_OFF), "side_requests_ram_off", slots(1),
    ),
    Situation("pasted_logs", programs.pasted_logs, slots(2, "--cache-ram", "1"), "slots_taken_ram_small", slots(2)),
    Situation("noon_restart", programs.noon_restart, slots(3), "restarted"),
    Situation(
        "forked_from_middle", programs.forked_from_middle, slots(1, "--ctx-checkpoints", "2"), "checkpoints_few",
        slots(1), kinds=GOES_BACK,
    ),
    Situation("two_on_one_slot", programs.two_on_one_slot, slots(1, *RAM_OFF), "slots_taken_ram_off", slots(1)),
    Situation("keepalive_pings", households.keepalive_pings, slots(1, *RAM_OFF), "side_requests_ram_off", slots(1)),
    Situation("models_swapped", households.models_swapped, slots(2), "restarted", kinds=DENSE),
    Situation(
        "uncached_by_option", households.uncached_by_option, slots(2, "--no-cache-prompt"), "cache_off_by_option",
        slots(2),
    ),
    Situation("erased_after_each", households.erased_after_each, slots(2, *SLOT_FILES), "slot_erased"),
    Situation(
        "strict_similarity", households.strict_similarity, slots(3, "-sps", "0.9", *RAM_OFF), "similarity_strict",
        slots(3, *RAM_OFF),
    ),
    Situation(
        "adapters_in_turn", households.adapters_in_turn, slots(1, "--lora", "adapter.gguf"), "lora_switched",
        kinds=DENSE,
    ),
    Situation(
        "four_chats_one_dated", households.four_chats_one_dated, slots(2, *RAM_OFF), "slots_taken_ram_off",
        slots(4, *RAM_OFF),
    ),
    Situation(
        "crews_in_one_memory", households.crews_in_one_memory, ("-c", "7168", *RAM_OFF), "kv_too_small",
        ("-c", "32768", *RAM_OFF),
    ),
    Situation(
        "evening_chats", households.evening_chats, ("-c", "32768", "--cache-ram", "1"), "slots_taken_ram_small",
        ("-c", "32768"),
    ),
    Situation("lunch_break", households.lunch_break, slots(3, "--sleep-idle-seconds", "1"), "slept", slots(3)),
    Situation("tenants", households.tenants, slots(4), "slot_shared_by_branches"),
    Situation("pinned_to_first", households.pinned_to_first, slots(3, *RAM_OFF), "slot_pinned"),
    Situation("autocomplete_beside", households.autocomplete_beside, slots(1), "slot_taken_unsaved", slots(2)),
    Situation(
        "rewritten_scene", households.rewritten_scene, slots(1, "--ctx-checkpoints", "0"), "checkpoints_off", slots(1),
        kinds=GOES_BACK,
    ),
    Situation(
        "questions_embedded", households.questions_embedded, slots(2, "--embeddings", "--pooling", "last"),
        "slot_taken_unsaved", slots(4, "--embeddings", "--pooling", "last"), kinds=DENSE,
    ),
    Situation("crowd", households.crowd, slots(2, *RAM_OFF), "slots_taken_ram_off", slots(2)),
    # ---- the client loses
    Situation("clock_beside", traffic.clock_beside, slots(2), "clock"),
    Situation("clock_beside_four", traffic.clock_beside, slots(4), "clock"),
    Situation("clock_beside_one", traffic.clock_beside, slots(1), "clock"),
    Situation("clock_alone", traffic.clock_alone, slots(1), "clock"),
    Situation("clock_alone_auto", traffic.clock_alone, ("-c", "32768"), "clock"),
    Situation("clock_alone_four", traffic.clock_alone, slots(4), "clock"),
    Situation("results_pruned", traffic.results_pruned, slots(1), "results_pruned"),
    Situation("billing_beside", traffic.billing_beside, slots(2), "billing_header"),
    Situation("clock_and_tools", traffic.clock_and_tools, slots(2), "clock_and_tools"),
    Situation("tools_shuffled", traffic.tools_shuffled, slots(2), "tools_shuffled"),
    Situation("mode_switch", traffic.mode_switch, slots(2), "tools_come_and_go"),
    Situation("rolling_window", traffic.rolling_window, slots(2), "rolling_window"),
    Situation("rolling_window_four", traffic.rolling_window, slots(4), "rolling_window"),
    Situation("rag_shuffled", traffic.rag_shuffled, slots(2), "passages_shuffled"),
    Situation("not_cached", traffic.not_cached, slots(2), "cache_prompt_false"),
    Situation("pinned", traffic.pinned, slots(2, *RAM_OFF), "slot_pinned"),
    Situation("reasoning_dropped", traffic.reasoning_dropped, slots(2), "reasoning_dropped"),
    Situation("middle_edited", traffic.middle_edited, slots(2), "early_message_edited"),
    Situation("status_late", habits.status_late, slots(2), "status_in_system"),
    Situation("reminder_moves", habits.reminder_moves, slots(2), "reminder_moves"),
    Situation("memory_grows", habits.memory_grows, slots(1), "memory_grows"),
    Situation("personas", habits.personas, slots(1), "personas"),
    Situation("request_ids", habits.request_ids, slots(3), "request_ids"),
    Situation("arguments_rewritten", habits.arguments_rewritten, slots(2), "arguments_rewritten"),
    Situation("replies_shortened", habits.replies_shortened, slots(1), "replies_shortened"),
    Situation("stamped_tool", habits.stamped_tool, slots(2), "tool_stamped"),
    Situation("not_cached_alone", habits.not_cached_alone, slots(1), "cache_prompt_false"),
    Situation("session_line", services.session_line, slots(2), "session_in_system"),
    Situation("examples_drawn", services.examples_drawn, slots(2), "examples_drawn"),
    Situation("open_file_first", services.open_file_first, slots(1), "open_file_first"),
    Situation("summary_rolls", services.summary_rolls, slots(2), "summary_rolls"),
    Situation("authors_note", services.authors_note, slots(1), "note_moves"),
    Situation("world_entries", services.world_entries, slots(2), "entries_in_system"),
    Situation("passages_leave", services.passages_leave, slots(1), "passages_leave"),
    Situation("tools_by_question", services.tools_by_question, slots(2), "tools_come_and_go"),
    Situation("every_second_uncached", services.every_second_uncached, slots(1), "cache_prompt_false"),
    Situation("hour_in_head", assistants.hour_in_head, slots(2), "clock"),
    Situation("keys_shuffled", assistants.keys_shuffled, slots(2), "keys_shuffled"),
    Situation("tools_found", assistants.tools_found, slots(1), "tools_added"),
    Situation("compacts_often", assistants.compacts_often, slots(1), "compacts_often"),
    Situation("window_keeps_first", assistants.window_keeps_first, slots(2), "rolling_window"),
    Situation("answers_rewritten", assistants.answers_rewritten, slots(1), "answers_rewritten"),
    Situation("location_late", assistants.location_late, slots(1), "status_in_system"),
    Situation("greeting_varies", assistants.greeting_varies, slots(3), "greeting_varies"),
    Situation("uncached_worker", assistants.uncached_worker, slots(2), "cache_prompt_false"),
    Situation("first_message_stamped", pipelines.first_message_stamped, slots(2), "first_message_stamped"),
    Situation("newest_first", pipelines.newest_first, slots(1), "newest_first"),
    Situation("results_trimmed", pipelines.results_trimmed, slots(1), "results_pruned"),
    Situation("uncached_pair", pipelines.uncached_pair, slots(2), "cache_prompt_false"),
    Situation("version_line", pipelines.version_line, slots(1), "request_ids"),
    Situation("tool_lists_files", pipelines.tool_lists_files, slots(2), "tool_stamped"),
    Situation("window_by_tokens", pipelines.window_by_tokens, slots(1), "rolling_window"),
    Situation("log_in_system", offices.log_in_system, slots(1), "log_in_system"),
    Situation("tools_by_use", offices.tools_by_use, slots(2), "tools_shuffled"),
    Situation("solved_tasks", offices.solved_tasks, slots(1), "memory_grows"),
    Situation("moods", studios.moods, slots(1), "personas"),
    Situation("budget_in_results", studios.budget_in_results, slots(1), "reminder_moves"),
    Situation("attachments_removed", studios.attachments_removed, slots(2), "results_pruned"),
    Situation("memories_first", studios.memories_first, slots(1), "entries_in_system"),
    Situation("ages_rewritten", studios.ages_rewritten, slots(1), "ages_rewritten"),
    Situation("pinned_by_name", workshops.pinned_by_name, slots(4, *RAM_OFF), "slot_pinned"),
    Situation("tool_server_drops", workshops.tool_server_drops, slots(1), "tools_come_and_go"),
    Situation("branch_in_prompt", workshops.branch_in_prompt, slots(1), "git_state_in_system"),
    Situation("files_refreshed", workshops.files_refreshed, slots(1), "results_pruned"),
    Situation("last_seen", workshops.last_seen, slots(2), "clock"),
    Situation("quota_line", workshops.quota_line, slots(2), "status_in_system"),
    Situation("weather_line", agencies.weather_line, slots(2), "session_in_system"),
    Situation("instruction_last", agencies.instruction_last, slots(1), "reminder_moves"),
    Situation("replies_corrected", agencies.replies_corrected, slots(1), "answers_rewritten"),
    Situation("uncached_steps", agencies.uncached_steps, slots(2), "cache_prompt_false"),
    Situation("core_memory", workshops.core_memory, slots(1), "memory_grows"),
    Situation("environment_details", programs.environment_details, slots(1), "reminder_moves"),
    Situation("todo_in_system", programs.todo_in_system, slots(2), "status_in_system"),
    Situation("tool_servers_reconnect", programs.tool_servers_reconnect, slots(2), "tools_shuffled"),
    Situation("web_results_in_system", programs.web_results_in_system, slots(1), "entries_in_system"),
    Situation("memory_plugin", programs.memory_plugin, slots(2), "open_file_first"),
    Situation("characters_reply", programs.characters_reply, slots(1), "personas"),
    Situation("folder_in_first_message", programs.folder_in_first_message, slots(1), "first_message_stamped"),
    Situation("screens_dropped", households.screens_dropped, slots(2, *SEES), "images_dropped", kinds=DENSE),
    Situation("photo_packed_again", households.photo_packed_again, slots(2, *SEES), "image_packed_again", kinds=DENSE),
    Situation("story_note", households.story_note, slots(1), "note_moves"),
    Situation("story_trimmed", households.story_trimmed, slots(1), "rolling_window"),
    Situation("dated_agent_among_two", households.dated_agent_among_two, slots(2, *RAM_OFF), "clock"),
    Situation("gateway_messages", households.gateway_messages, slots(1), "request_ids"),
    Situation("state_after_system", households.state_after_system, slots(2), "first_message_stamped"),
    Situation("modes_in_turn", households.modes_in_turn, slots(2, *RAM_OFF), "personas"),
    Situation("permissions_change", households.permissions_change, slots(2, *RAM_OFF), "tools_come_and_go"),
    Situation("uncached_translator", households.uncached_translator, slots(2), "cache_prompt_false"),
    Situation("numbered_workers", households.numbered_workers, slots(3, *RAM_OFF), "request_ids"),
    Situation("dated_job", households.dated_job, slots(1), "clock"),
    Situation("customer_first", households.customer_first, slots(2), "customer_first"),
    # ---- together
    Situation("cold_burst", traffic.cold_burst, ("-np", "4", "-kvu", "-c", "32768"), "together"),
    Situation("batch_at_once", studios.batch_at_once, slots(4), "together"),
    Situation("drafts_at_once", workshops.drafts_at_once, slots(4), "together"),
    # ---- nothing to fix
    Situation("new_chats_one", traffic.new_chats, slots(1)),
    Situation("new_chats_four", traffic.new_chats, slots(4)),
    Situation("same_question", traffic.same_question, slots(2)),
    Situation("one_shots_one", traffic.one_shots, slots(1)),
    Situation("one_shots_four", traffic.one_shots, slots(4)),
    Situation("short_instruction_auto", traffic.short_instruction, ("-c", "32768")),
    Situation("short_instruction_one", traffic.short_instruction, slots(1)),
    Situation("compaction", traffic.compaction, slots(2), going_back=True),
    Situation("cancellations", traffic.cancellations, slots(2), going_back=True),
    Situation("regenerated", traffic.regenerated, slots(1), going_back=True),
    Situation("at_once", traffic.at_once, slots(4)),
    Situation("agents_chat_default", traffic.agents_and_chat, slots(1)),
    Situation("sub_agents_four", traffic.sub_agents, slots(4)),
    Situation("three_on_auto", traffic.three_users, ("-c", "32768")),
    Situation("documents", traffic.growing_documents, slots(2)),
    Situation("night_batch", habits.night_batch, slots(2)),
    Situation("suites", habits.suites, slots(4)),
    Situation("long_replies", habits.long_replies, slots(2)),
    Situation("forms_beside", pipelines.forms_beside, slots(1)),
    Situation("translations", pipelines.translations, slots(2)),
    Situation("short_agents", pipelines.short_agents, slots(1), going_back=True),
    Situation("summaries_asked", pipelines.summaries_asked, slots(1), going_back=True),
    Situation("mails_beside", offices.mails_beside, slots(3)),
    Situation("new_at_once", offices.new_at_once, slots(4)),
    Situation("resumed_later", offices.resumed_later, slots(1)),
    Situation("last_rewritten", offices.last_rewritten, slots(1), going_back=True),
    Situation("passages_once", offices.passages_once, slots(2)),
    Situation("letters", services.letters, slots(2)),
    Situation("one_after_another", services.one_after_another, slots(1)),
    Situation("voice_commands", services.voice_commands, slots(2)),
    Situation("results_at_once", services.results_at_once, slots(2)),
    Situation("polling", assistants.polling, slots(2)),
    Situation("queue_of_four", assistants.queue_of_four, slots(4)),
    Situation("new_day_new_chat", assistants.new_day_new_chat, slots(1)),
    Situation("agents_start_together", assistants.agents_start_together, slots(3)),
    Situation("forms_of_kinds", studios.forms_of_kinds, slots(2)),
    Situation("retried", studios.retried, slots(2), going_back=True),
    Situation("goes_back", studios.goes_back, slots(1), going_back=True),
    Situation("code_completion", studios.code_completion, slots(1)),
    Situation("fixed_passages", studios.fixed_passages, slots(2)),
    Situation("titles_beside", studios.titles_beside, slots(3)),
    Situation("ensemble", studios.ensemble, slots(4)),
    Situation("minutes_at_end", studios.minutes_at_end, slots(1)),
    Situation("subtitles", workshops.subtitles, slots(2)),
    Situation("endings_scored", workshops.endings_scored, slots(1), going_back=True),
    Situation("thoughts", workshops.thoughts, slots(1), going_back=True),
    Situation("forms_with_errors", workshops.forms_with_errors, slots(2)),
    Situation("meeting_notes", workshops.meeting_notes, slots(2), going_back=True),
    Situation("pasted_documents", workshops.pasted_documents, slots(2)),
    Situation("tickets", workshops.tickets, slots(1), going_back=True),
    Situation("hourly_figures", workshops.hourly_figures, slots(3)),
    Situation("small_talk", workshops.small_talk, slots(1)),
    Situation("pieces_refined", workshops.pieces_refined, slots(2)),
    Situation("parallel_team", workshops.parallel_team, slots(4)),
    Situation("offers_in_pairs", agencies.offers_in_pairs, slots(3)),
    Situation("lessons", agencies.lessons, slots(1), going_back=True),
    Situation("search_and_answer", agencies.search_and_answer, slots(2)),
    Situation("tests_repaired", agencies.tests_repaired, slots(2), going_back=True),
    Situation("morning_digest", agencies.morning_digest, slots(1)),
    Situation("moderated_group", agencies.moderated_group, slots(2)),
    Situation("voice_interrupted", programs.voice_interrupted, slots(2), going_back=True),
    Situation("again_and_from_there", programs.again_and_from_there, slots(2), going_back=True),
    Situation("summaries_by_clock", programs.summaries_by_clock, slots(2)),
    Situation("invoices", programs.invoices, slots(2)),
    Situation("passages_at_end", programs.passages_at_end, slots(2)),
    Situation("answered_then_judged", programs.answered_then_judged, slots(1)),
    Situation("five_languages", programs.five_languages, slots(1), going_back=True),
    Situation("titles_on_one_slot", programs.titles_on_one_slot, slots(1)),
    Situation("long_agent_compacts", workshops.long_agent_compacts, slots(1), going_back=True),
    Situation("stamped_messages", lookalikes.stamped_messages, slots(2)),
    Situation("uncached_batch_beside", lookalikes.uncached_batch_beside, slots(2)),
    Situation("warmed_up", lookalikes.warmed_up, slots(2), going_back=True),
    Situation("pinned_well", lookalikes.pinned_well, slots(3, *RAM_OFF)),
    Situation("window_with_reuse", lookalikes.window_with_reuse, slots(1, "--cache-reuse", "64"), kinds=DENSE),
    Situation("screens_kept", lookalikes.screens_kept, slots(2, *SEES), kinds=DENSE),
    Situation("camera_events", lookalikes.camera_events, slots(2, *SEES), kinds=DENSE),
    Situation("slot_files", lookalikes.slot_files, slots(1, *SLOT_FILES, *RAM_OFF), kinds=DENSE),
    Situation("night_restart", lookalikes.night_restart, slots(2)),
    Situation("slept_between", lookalikes.slept_between, slots(2, "--sleep-idle-seconds", "1")),
    Situation("tiny_ram_enough_slots", lookalikes.tiny_ram_enough_slots, slots(4, "--cache-ram", "1")),
    Situation("never_goes_back", lookalikes.never_goes_back, slots(2, "--ctx-checkpoints", "0"), kinds=GOES_BACK),
    Situation("typed_in_editor", lookalikes.typed_in_editor, slots(1)),
    Situation("prompt_tuned", lookalikes.prompt_tuned, slots(1)),
    Situation("forked_helpers", lookalikes.forked_helpers, slots(3), going_back=True),
    Situation("sentences_trimmed", lookalikes.sentences_trimmed, slots(1), going_back=True),
    Situation("reviews_by_size", lookalikes.reviews_by_size, slots(2)),
    Situation("drafted", lookalikes.drafted, slots(2, "-md", "dense.gguf"), kinds=DENSE),
    Situation("full_window", lookalikes.full_window, slots(1, "--swa-full"), kinds=SWA),
    Situation("crowd_kept", households.crowd, slots(2)),
    Situation("context_full", lookalikes.context_full, slots(1, each=4096)),
    Situation("status_polled", lookalikes.status_polled, slots(2)),
    Situation("two_programs", lookalikes.two_programs, slots(1)),
    Situation("three_answers", lookalikes.three_answers, slots(4), kinds=DENSE),
]  # fmt: skip
