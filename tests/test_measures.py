"""Dumps of /metrics as counters: what the series of vLLM and SGLang count, and differences between dumps.

The dumps in fixtures/vllm were written by a real vLLM 0.32.0, each beside the usage of every response: sums over these
are what the counters must say.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from cachedoctor.inputs.metrics.dump import lives
from cachedoctor.inputs.metrics.dumps import servers
from cachedoctor.model import CacheDoctorError, Counters

REAL = Path(__file__).parent.parent / "fixtures" / "vllm"
HEALTHY, MUTATION, SHORT, BILLING = (f"vllm032_dense_{name}" for name in ("healthy", "mutation", "short", "billing"))
BEGAN = "process_start_time_seconds 1.79521822689e+09\n"


def dump(name: str) -> tuple[str, str]:
    return name, (REAL / f"{name}.metrics.txt").read_text()


def spans(*texts: tuple[str, str]) -> list[list[list[Counters]]]:
    return lives([found for path, text in texts for found in servers([text.encode()], path)])


def only(*texts: tuple[str, str]) -> list[Counters]:
    """The counters of the one life of the one server in the dumps."""
    ((life,),) = spans(*texts)
    return life


def made(engine: str, *series: str, head: str = "") -> str:
    """A dump; ``series`` without the prefix of their engine."""
    return head + "".join(f"{engine}:{line}\n" for line in series)


# ---- vLLM


def test_one_dump_counts_since_the_start():
    (counted,) = only(dump(HEALTHY))
    assert (counted.path, counted.since, counted.source) == (HEALTHY, None, "vllm")
    assert (counted.engine, counted.model) == ("0", "tiny")
    # 26 responses: 52,727 prompt tokens, 48,000 of them cached; the rest was computed.
    assert (counted.looked_up, counted.reused, counted.prompt_tokens) == (52_727, 48_000, 52_727)
    assert counted.computed == 52_727 - 48_000
    assert (counted.requests, counted.preemptions) == (26, 0)
    assert counted.cached_by_tier == {"device": 48_000, "host": 0, "p2p": 0, "disk": 0, "external_unspecified": 0}
    assert (counted.external_looked_up, counted.external_reused, counted.evicted) == (0, 0, None)
    facts = ("enable_prefix_caching", "block_size", "num_gpu_blocks", "kv_cache_size_tokens", "mamba_cache_mode")
    assert [counted.config[name] for name in facts] == ["True", "128", "8192", "1048576", "none"]


def test_differences_are_what_the_responses_say():
    mutation, short, later = only(dump(HEALTHY), dump(MUTATION), dump(SHORT), dump(BILLING))
    # 26 requests with a time in front: 25,463 tokens, none cached.
    assert (mutation.path, mutation.since) == (MUTATION, HEALTHY)
    assert (mutation.requests, mutation.looked_up, mutation.reused, mutation.computed) == (26, 25_463, 0, 25_463)
    # 26 x 36 tokens.
    assert (short.requests, short.looked_up, short.reused) == (26, 26 * 36, 0)
    # The 32 of the billing header reuse all that is reused; 26 others, of which no dump was made, came before them.
    assert (later.requests, later.reused) == (32 + 26, 31 * 896)
    assert later.computed == later.looked_up - later.reused


def by_tier(**tokens: int) -> str:
    return made("vllm", *(f'prompt_tokens_cached_by_source_total{{source="{at}"}} {n}' for at, n in tokens.items()))


def test_reused_tokens_by_the_memory_that_they_were_found_in():
    one, two = by_tier(device=100, host=40), by_tier(device=130, host=45, disk=7, elsewhere=2)
    (counted,) = only(("a", one), ("b", two))
    assert counted.cached_by_tier == {"device": 30, "host": 5, "disk": 7, "elsewhere": 2}
    (counted,) = only(("a", made("vllm", "prompt_tokens_total 5")), ("b", two + made("vllm", "prompt_tokens_total 9")))
    assert counted.cached_by_tier == {}, "the first does not tell them"
    (many,) = only(("m", by_tier(**{f"t{at}": at for at in range(40)})))
    assert len(many.cached_by_tier) == 16


def test_the_order_is_found_by_what_was_counted():
    given = [dump(name) for name in (HEALTHY, MUTATION, SHORT, BILLING)]
    expected = only(*given)
    for order in itertools.permutations(given):
        assert only(*order) == expected


def test_each_engine_for_itself():
    first, second = only(dump("vllm032_dp2_default"))
    assert [(c.engine, c.looked_up, c.reused) for c in (first, second)] == [
        ("0", 26_244, 22_656),
        ("1", 26_483, 22_400),
    ]
    # The 26 responses of both engines: 52,727 tokens, 45,056 cached.
    assert (first.looked_up or 0) + (second.looked_up or 0) == 52_727
    assert (first.reused or 0) + (second.reused or 0) == 45_056
    assert first.config == second.config
    assert first.config["num_gpu_blocks"] == "16384"


def test_hybrid():
    first, branch, short = "healthy", "branch", "branchshort"
    found = only(*(dump(f"vllm032_hybrid_gdn.{name}") for name in (first, branch, short)))
    assert [(c.requests, c.looked_up, c.reused) for c in found] == [(16, 19_688, 10_752), (16, 4_203, 0)]


def test_preemptions_and_caching_that_is_off():
    assert [c.preemptions for c in only(dump("vllm032_preemption.preempt"))] == [4]
    (off,) = only(dump("vllm032_prefix_caching_off.off"))
    assert (off.looked_up, off.reused, off.prompt_tokens, off.computed) == (0, 0, 52_727, 52_727)
    assert off.config["enable_prefix_caching"] == "False"


def test_old_and_new_names_are_not_added():
    """0.9.2 to 0.11.2 have both."""
    both = [f'{old}prefix_cache_{kind}_total{{engine="0"}} {n}' for old in ("gpu_", "") for kind, n in KINDS]
    (counted,) = only(("m", made("vllm", *both)))
    assert (counted.looked_up, counted.reused) == (100, 60)


KINDS = (("queries", 100), ("hits", 60))


@pytest.mark.parametrize(("unit", "known"), [("tokens", (100, 60)), ("blocks", (None, None)), (None, (None, None))])
def test_the_old_names_count_tokens_or_blocks(unit, known):
    helps = [
        f"# HELP vllm:gpu_prefix_cache_{kind}_total GPU prefix cache {kind}, in terms of {unit}." for kind, _ in KINDS
    ]
    series = [f"vllm:gpu_prefix_cache_{kind}_total {n}" for kind, n in KINDS]
    text = "\n".join([*(helps if unit else []), *series, "vllm:prompt_tokens_total 120\n"])
    (counted,) = only(("m", text))
    assert (counted.looked_up, counted.reused) == known
    assert (counted.engine, counted.model, counted.prompt_tokens) == (None, None, 120)


def test_computed_before_0_16():
    """A histogram has it since 0.13."""
    series = ("prompt_tokens_total 500", "request_prefill_kv_computed_tokens_sum 120", 'x_bucket{le="1"} 7')
    (counted,) = only(("m", made("vllm", *series)))
    assert counted.computed == 120


def test_other_spellings():
    series = ("prompt_tokens_total 500", "prefix_cache_queries 400")
    underscored = made("vllm", *series).replace("vllm:", "vllm_")
    (counted,) = only(("m", underscored))
    assert (counted.prompt_tokens, counted.looked_up) == (500, 400)
    # A collector that writes both does not count twice.
    (counted,) = only(("m", made("vllm", *series) + underscored))
    assert (counted.prompt_tokens, counted.looked_up) == (500, 400)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-5", "1e300"])
def test_what_is_not_a_count_is_unknown(value):
    (counted,) = only(("m", made("vllm", f"prompt_tokens_total {value}", "prefix_cache_hits_total 7")))
    assert (counted.prompt_tokens, counted.reused) == (None, 7)


def test_a_gauge_is_not_a_counter():
    text = "# TYPE vllm:prompt_tokens gauge\nvllm:prompt_tokens 5\nvllm:prefix_cache_hits_total 7\n"
    (counted,) = only(("m", text))
    assert counted.prompt_tokens is None


def test_facts_of_another_engine_are_not_its_own():
    info = 'cache_config_info{engine="1",block_size="16"} 1'
    (counted,) = only(("m", made("vllm", 'prompt_tokens_total{engine="0"} 5', info)))
    assert counted.config == {}
    (counted,) = only(("m", made("vllm", 'prompt_tokens_total{engine="0"} 5', info.replace('engine="1",', ""))))
    assert counted.config == {"block_size": "16"}


# ---- lives


def vllm(tokens: int, hits: int, head: str = "") -> str:
    return made("vllm", f"prompt_tokens_total {tokens}", f"prefix_cache_hits_total {hits}", head=head)


def test_another_start_is_another_life():
    later = BEGAN.replace("22689", "23689")
    first, second = spans(("b", vllm(900, 9, later)), ("a", vllm(100, 1, BEGAN)))[0]
    assert [(c.path, c.since, c.prompt_tokens) for c in first] == [("a", None, 100)]
    assert [(c.path, c.since, c.prompt_tokens) for c in second] == [("b", None, 900)]  # more than before, and yet


def test_the_start_may_differ_by_a_second():
    (counted,) = only(("a", vllm(100, 1, BEGAN)), ("b", vllm(900, 9, BEGAN.replace("22689", "22690"))))
    assert (counted.since, counted.prompt_tokens, counted.reused) == ("a", 800, 8)


@pytest.mark.parametrize("kept", ["vllm:prompt_tokens_created 1.795e9\n", ""])
def test_a_counter_that_fell(kept):
    """Without the start of a process, as after several API servers."""
    first, second = spans(("a", vllm(100, 90, kept)), ("b", vllm(400, 9, kept)))[0]
    assert first[0].path == "a"
    assert [(c.path, c.since, c.prompt_tokens, c.reused) for c in second] == [("b", None, 400, 9)]


def test_created_series_tell_lives_apart():
    old, new = (f"vllm:prompt_tokens_created {time}\n" for time in ("1.795e9", "1.7951e9"))
    first, second = spans(("b", vllm(900, 9, new)), ("a", vllm(100, 1, old)))[0]
    assert (first[0].path, second[0].path, second[0].since) == ("a", "b", None)


def test_times_of_samples_order_what_has_no_start():
    texts = [(name, made("vllm", f"prompt_tokens_total {n} {at}")) for name, n, at in (("b", 9, 2000), ("a", 4, 1000))]
    (counted,) = only(*texts)
    assert (counted.path, counted.since, counted.prompt_tokens) == ("b", "a", 5)


def test_without_any_time_the_order_is_the_given_one():
    (counted,) = only(("x", vllm(100, 1)), ("a", vllm(300, 5)))
    assert (counted.path, counted.since, counted.prompt_tokens) == ("a", "x", 200)


def test_what_the_earlier_dump_lacks_is_unknown():
    (counted,) = only(("a", made("vllm", "prompt_tokens_total 100")), ("b", vllm(300, 5)))
    assert (counted.prompt_tokens, counted.reused) == (200, None)


def test_servers_of_two_models_are_two():
    texts = [(name, vllm(5, 1).replace("_total", f'_total{{model_name="{name}"}}')) for name in ("a", "b")]
    assert [[c.model for c in server[0]] for server in spans(*texts)] == [["a"], ["b"]]


def test_a_collector_names_several_servers():
    def text(one: int, two: int) -> str:
        return made("vllm", *(f'prompt_tokens_total{{instance="{at}"}} {n}' for at, n in (("h1", one), ("h2", two))))

    found = spans(("a", text(10, 500)), ("b", text(30, 600)))
    assert [[c.prompt_tokens for c in server[0]] for server in found] == [[20], [100]]


# ---- SGLang


def test_sglang():
    series = (
        'prompt_tokens_total{model_name="m"} 8.128902e+06',
        'cached_tokens_total{cache_source="device",model_name="m"} 4000',
        'cached_tokens_total{cache_source="host",model_name="m"} 500',
        'num_requests_total{model_name="m"} 12',
        'cache_hit_rate{model_name="m"} 0.99',  # of the last batch: not read
        'num_retracted_requests_total{dp_rank="0",model_name="m",tp_rank="0"} 2',
        'num_retracted_requests_total{dp_rank="1",model_name="m",tp_rank="0"} 3',
        'evicted_tokens_total{model_name="m",tp_rank="0"} 640',
        'evicted_tokens_total{model_name="m",tp_rank="1"} 704',  # the same tokens, seen by another rank
        'realtime_tokens_total{mode="prefill_compute",model_name="m"} 70',
        'realtime_tokens_total{mode="decode",model_name="m"} 9',
    )
    (counted,) = only(("m", made("sglang", *series)))
    expected = Counters("m", None, "sglang", model="m", reused=4500, prompt_tokens=8_128_902, computed=70)
    expected.requests, expected.preemptions, expected.evicted = 12, 5, 704
    expected.cached_by_tier = {"device": 4000, "host": 500}
    assert counted == expected


def test_sglang_says_what_was_not_cached():
    series = ("uncached_prompt_tokens_histogram_sum 44", 'realtime_tokens_total{mode="prefill_compute"} 70')
    (counted,) = only(("m", made("sglang", *series)))
    assert counted.computed == 44


def test_sglang_by_rank():
    series = [f'prompt_tokens_total{{dp_rank="{rank}",tp_rank="{tp}"}} {rank}00' for rank in (1, 2) for tp in (0, 1)]
    assert [(c.engine, c.prompt_tokens) for c in only(("m", made("sglang", *series)))] == [("1", 100), ("2", 200)]


def test_sglang_counters_come_late():
    """They are in no dump before their first token: what the earlier dump lacks was 0, not unknown."""
    early, later = made("sglang", "prompt_tokens_total 100"), ("prompt_tokens_total 300", "cached_tokens_total 50")
    (counted,) = only(("a", early), ("b", made("sglang", *later)))
    assert (counted.prompt_tokens, counted.reused) == (200, 50)
    # One that was there and is gone: the server began again.
    first, second = spans(("a", made("sglang", *later)), ("b", made("sglang", "prompt_tokens_total 400")))[0]
    assert [(c.since, c.prompt_tokens, c.reused) for c in second] == [(None, 400, None)]
    assert first[0].reused == 50


# ---- neither


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "llamacpp:prompt_tokens_total 9\nllamacpp:prompt_seconds_total 1\n",
            "m: is a dump of llama-server's /metrics",
        ),
        ("go_goroutines 9\n", "m: this dump of /metrics has no counters of vLLM or SGLang"),
        ("vllm:num_requests_running 0\n", "m: this dump of /metrics has no counters of vLLM or SGLang"),
        ("INFO 11-20 23:44:25 [core.py:133] no\n", "m: is not a dump of /metrics"),
    ],
)
def test_refused(text, words):
    with pytest.raises(CacheDoctorError) as refusal:
        servers([text.encode()], "m")
    assert refusal.value.message.startswith(words)
    assert refusal.value.hint


def test_facts_are_bounded():
    labels = ",".join(f'l{at}="{"x" * 300}"' for at in range(100))
    (counted,) = only(("m", made("vllm", "prompt_tokens_total 1", f"cache_config_info{{{labels}}} 1")))
    assert len(counted.config) == 64
    assert {len(value) for value in counted.config.values()} == {200}
