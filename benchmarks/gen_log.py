# ruff: noqa: E501  # the lines of the log are shown whole
"""Write a llama-server log of a chosen size with the message shapes of a chosen era, to standard output.

usage: gen_log.py --era b8352|b9713|b11549-trace|b11549-default --size 1G [--slots 4] [--seed 1]

The traffic: conversations that grow turn by turn on a few slots; now and then one changes its head (all is recomputed), drops its tail,
or loses its slot to another conversation. Numbers are consistent per request (prompt = cached + processed); text is synthetic.
"""

import argparse
import random
import sys


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--era", default="b11549-trace", choices=["b8352", "b9713", "b11549-trace", "b11549-default"])
    ap.add_argument("--size", default="100M")
    ap.add_argument("--slots", type=int, default=4)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    unit = {"K": 10**3, "M": 10**6, "G": 10**9}
    target = int(float(a.size[:-1]) * unit[a.size[-1].upper()]) if a.size[-1].isalpha() else int(a.size)
    rnd = random.Random(a.seed)
    new = a.era.startswith("b11549")
    trace = a.era != "b11549-default"
    stamped = a.era != "b8352"
    fn = "  operator()" if new else "update_slots"
    sim_name = "f_sim_best" if new else "sim_best"
    clock = 0.0
    out = sys.stdout
    written = 0
    task = 0
    slot_len = [0] * a.slots
    chat_len = [rnd.randint(2000, 20000) for _ in range(a.slots)]
    buf: list[str] = []

    def line(text: str, level: str = "I") -> None:
        nonlocal clock
        clock += rnd.random() * 0.004
        if stamped:
            us = int(clock * 1e6)
            text = f"{us // 60_000_000}.{us // 1_000_000 % 60:02d}.{us // 1000 % 1000:03d}.{us % 1000:03d} {level} {text}"
        buf.append(text + "\n")

    line(f"srv    load_model: initializing, n_slots = {a.slots}, n_ctx_slot = 262144, kv_unified = 'false'")
    while written < target:
        s = rnd.randrange(a.slots)
        grow = rnd.randint(60, 3000)
        if chat_len[s] > 180_000:
            chat_len[s], slot_len[s] = rnd.randint(2000, 20000), 0
        prompt = chat_len[s] + grow
        what = rnd.random()
        if slot_len[s] == 0:
            lcp = 0
        elif what < 0.75:
            lcp = slot_len[s]
        elif what < 0.85:
            lcp = rnd.randint(8, 60)
        else:
            lcp = rnd.randint(slot_len[s] // 2, slot_len[s])
        sim, keep = lcp / prompt, (lcp / slot_len[s] if slot_len[s] else 0.0)
        forced = 0 < lcp < slot_len[s] and lcp < slot_len[s] * 0.6
        cached = 0 if forced else lcp
        gen = rnd.randint(20, 400)
        task += rnd.randint(2, 60)
        old_id = f"slot get_availabl: id  {s} | task -1 | "
        if sim > 0.1:
            line(f"{old_id}selected slot by LCP similarity, {sim_name} = {sim:.3f} (> 0.100 thold), f_keep = {keep:.3f}")
        else:
            line(f"{old_id}selected slot by LRU, t_last = {int(clock * 1e6)}")
        if trace and keep < 0.5:
            line("srv  get_availabl: updating prompt cache")
            line(f"srv   prompt_save:  - saving prompt with length {slot_len[s]}, total state size = {slot_len[s] / 11:.3f} MiB (draft: 0.000 MiB)", "W")
            line(f"srv          load:  - looking for better prompt, base f_keep = {keep:.3f}, {'f_sim' if new else 'sim'} = {sim:.3f}")
            line("srv        update:  - cache state: 5 prompts, 785.314 MiB (limits: 8192.000 MiB, 262144 tokens, 262144 est)")
            for _ in range(5):
                line(f"srv        update:    - prompt 0x619d01a2e{rnd.randint(100, 999)}: {rnd.randint(50, 90000):7d} tokens, checkpoints: {rnd.randint(1, 32):2d}, {rnd.random() * 400:9.3f} MiB")
            line("srv  get_availabl: prompt cache update took 57.52 ms")
        head = f"slot launch_slot_: id  {s} | task "
        if trace:
            line(f"{head}-1 | sampler chain: logits -> ?penalties -> ?dry -> ?top-n-sigma -> top-k -> ?typical -> top-p -> min-p -> ?xtc -> temp-ext -> dist ")
        line(f"{head}{task} | processing task, is_child = 0")
        me = f"slot {fn}: id  {s} | task {task} | "
        if trace:
            line(f"{me}new prompt, n_ctx_slot = 262144, n_keep = 0, task.n_tokens = {prompt}")
            if 0 < lcp < slot_len[s]:
                check = "checking" if new else "Checking"
                for k in range(rnd.randint(1, 32) if forced else 1):
                    line(f"{me}{check} checkpoint with [{lcp + 900 - k}, {lcp + 900 - k}] against {lcp}...")
                if forced:
                    line(f"{me}forcing full prompt re-processing due to lack of cache data (likely due to SWA or hybrid/recurrent memory, see https://github.com/ggml-org/llama.cpp/pull/13194#issuecomment-2868343055)", "I" if new else "W")
                else:
                    line(f"{me}restored context checkpoint (pos_min = {lcp - 1}, pos_max = {lcp - 1}, n_tokens = {lcp}, n_past = {lcp}, size = 62.813 MiB)", "I" if new else "W")
            word = "cached n_tokens" if stamped else "n_tokens"
            at = cached
            while at < prompt:
                line(f"{me}{word} = {at}, memory_seq_rm [{at}, end)")
                at = min(prompt, at + 2048)
                if at < prompt or rnd.random() < 0.5:
                    line(f"slot create_check: id  {s} | task {task} | created context checkpoint {rnd.randint(1, 32)} of 32 (pos_min = {at - 1}, pos_max = {at - 1}, n_tokens = {at}, size = 62.813 MiB)", "I" if stamped else "W")
        ms = (prompt - cached) * (0.8 + prompt / 100_000)
        t = f"slot print_timing: id  {s} | task {task} | "
        pe = f"prompt eval time = {ms:10.2f} ms / {prompt - cached:5d} tokens ({ms / max(1, prompt - cached):8.2f} ms per token, {1000 * (prompt - cached) / max(ms, 1):8.2f} tokens per second)"
        ev = f"       eval time = {gen * 24.0:10.2f} ms / {gen:5d} tokens (   24.00 ms per token,    41.67 tokens per second)"
        tt = f"      total time = {ms + gen * 24:10.2f} ms / {prompt - cached + gen:5d} tokens"
        clock += ms / 1000
        if stamped:
            line(t + pe)
            line(t + ev)
            line(t + tt)
            line(t + f"   graphs reused = {rnd.randint(1, 9999):10d}")
        else:
            buf.append(f"{t}\n{pe}\n{ev}\n{tt}\n")
        slot_len[s] = prompt + gen - 1
        chat_len[s] = prompt + gen
        line(f"slot      release: id  {s} | task {task} | stop processing: n_tokens = {slot_len[s]}, truncated = 0")
        if not stamped:
            line("srv  update_slots: all slots are idle")
            line("srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200")
        if len(buf) > 4000:
            text = "".join(buf)
            written += len(text)
            buf.clear()
            out.write(text)
    out.write("".join(buf))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        pass
