"""What reports quote: a few tokens of a prompt, the proof, and no secret; in every format."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from command import FIRST, HEAD, LOG, TURN, run
from conftest import report_of
from loops import each
from secret_places import SECRETS

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.event_stream import EventStream
from cachedoctor.model import Cost, Evidence, Finding
from cachedoctor.redaction import sanitize
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.base import FORMATS, Appearance, write

LOOKS_LIKE_A_SECRET = (
    "openai key", "anthropic key", "hugging face token", "github token", "gitlab token", "slack token", "google key",
    "aws key id", "stripe key", "jwt", "pem", "bearer", "basic auth url", "mail", "unix path", "path with blanks",
    "windows path",
)  # fmt: skip
LONG = "The quick brown fox jumps over the lazy dog. " * 20


@each("kind", LOOKS_LIKE_A_SECRET)
def test_what_looks_like_a_secret_is_hidden(kind: str) -> None:
    assert (
        "zq"
        not in hidden(f"before {SECRETS[kind]} after".replace("private-zq", "x").replace("private zq", "x")).lower()
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'/home/jane/models/x.gguf'", "'/home/<user>/models/x.gguf'"),
        ("/Users/jane doe/x.gguf and", "/Users/<user>/x.gguf and"),
        (r"C:\Users\Jane Doe\x.gguf", r"C:\Users\<user>\x.gguf"),
        (r"c:\\users\\jane\\x.gguf", r"c:\\users\\<user>\\x.gguf"),
        ("Authorization: Bearer abcdef123", "Authorization: Bearer <token>"),
        ("https://jane:hunter2@host/x", "https://<user>:<password>@host/x"),
        ("llama-server --api-key hunter2 -np 4", "llama-server --api-key <secret> -np 4"),
        ('{"password": "hunter2", "n": 4}', '{"password": "<secret>", "n": 4}'),
        (r"{\"password\": \"hunter2\", \"n\": 4}", r"{\"password\": \"<secret>\", \"n\": 4}"),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY12", "wJal<key>"),
        ("0123456789abcdef0123456789abcdef", "0123<key>"),
        ("new: ... sk-ant-api03-abcdef | ghijkl. Be", "new: ... sk-ant-<key> | <key> Be"),
    ],
)
def test_how_it_is_hidden(text: str, shown: str) -> None:
    assert hidden(text) == shown
    assert hidden(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "new: ... x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch= | b791f;",
        "new: ... Current time: 2026-11-20 14:02: | 59 UTC",
        "new: ... session 123e4567-e89b-12d3-a456-426 | 614174000",
        "slot update_slots: id  0 | task 9 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 58",
        "cache token limit (32768, est: 211000) reached, 10.35 tokens per second",
        "EOS token = 151645 '<|im_end|>'",
        "see https://github.com/ggml-org/llama.cpp/pull/13194#issuecomment-2868343055",
        "/models/Qwen3-Coder-30B-A3B-Instruct-UD-Q4_K_XL-00001-of-00002.gguf",
    ],
)
def test_proofs_and_names_of_models_stay(text: str) -> None:
    assert hidden(text) == text


def _log(old: str, new: str) -> str:
    first = HEAD.replace("/models/hybrid.gguf", "/models/sk-proj-Zq81kkTTvv29sLLm0pQx")
    diff = "".join(
        f"0.00.637.407 W slot   operator(): id  0 | task 9 | {side}: ...{text}\n"
        for side, text in (("old", old), ("new", new))
    )
    similar = "0.00.371.357 I slot get_availabl: id  0 | task -1 |  - checking sim = 0.030 (58/2035) > 0.100\n"
    return (
        FIRST.replace(HEAD, first)
        + TURN.format(task=9, tokens=2035, similarity=similar, diff=diff)
    )  # fmt: skip


HEADER = "x-anthropic-billing-header: cc_version=2.1; cch="


def _evidence(report: dict[str, Any], side: str) -> str:
    return next(e["text"] for f in report["findings"] for e in f["evidence"] if f"| {side}: ..." in e["text"])


def test_a_report_quotes_a_few_tokens_of_a_prompt() -> None:
    report = report_of(_log(f" {LONG} jane@example.org {HEADER} | b791f; {LONG}", f" {LONG} {HEADER} | 0ed9c; {LONG}"))
    assert [f["code"] for f in report["findings"]][:1] == ["CD101"]
    new = _evidence(report, "new")
    assert f"{HEADER} | 0ed9c;" in new
    assert "characters ...]" in new
    assert len(new) < 300
    assert report["sessions"][0]["model"] == "sk-proj-<key>"


@pytest.mark.sweep
def test_both_formats_and_the_live_report_hide_secrets(tmp_path: Path) -> None:
    log = _log(f" key hf_ZqWvTkrLmNsPqRtUvWxYzAbCd {HEADER} | b791f;", f" zq@example.org {HEADER} | 0ed9c;").encode()
    path = tmp_path / "server.log"
    path.write_bytes(log)
    for done in (run("analyze", path, "-v"), run("analyze", path, "-f", "json"), run("analyze", "-", "-v", stdin=log)):
        assert done.returncode == 0
        assert b"CD101" in done.stdout
        assert b"<mail>" in done.stdout
        assert b"Zq" not in done.stdout
        assert b"zq@" not in done.stdout


def test_diff_hides_secrets(tmp_path: Path) -> None:
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    a.write_text("You help zq@example.org, key sk-proj-Zq81kkTTvv29sLLm. Today is Monday.")
    b.write_text("You help zq@example.org, key sk-proj-Zq81kkTTvv29sLLm. Today is Tuesday.")
    for done in (run("diff", a, b, "--context", "40"), run("diff", a, b, "-f", "json")):
        assert done.returncode == 1
        assert b"Zq8" not in done.stdout
        assert b"zq@" not in done.stdout
        assert b"Monday" in done.stdout


KEY = "sk-ant-api03-" + "Zq8-_" * 30


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (" key sk-an | t-api03-Zq81kkTTvv29. Be", " key sk-ant-<key> | <key>. Be"),
        (" key s | k-proj-Zq81kkTTvv29sL. Be", " key sk-proj-<key> | <key>. Be"),
        (" password=hun | zqter2 and", " password=<secret> | <secret> and"),
        (' {"api_key": "abcd | zqabcd"}', ' {"api_key": "<secret> | <secret>"}'),
        (" Bearer abcdefgh | zqijkl and", " Bearer <token> | <token> and"),
        (" to zqjane.doe@exam | ple.org or", " to <mail> | <mail> or"),
        (" /home/zq | jane/models", " /home/<user> | <user>/models"),
        (f" {KEY} | . And", " sk-ant-<key> | . And"),
        (f" and | {KEY}", " and | sk-ant-<key>"),
        (" -----BEGIN PRIVATE KEY-----" + "Zq81/" * 40 + " | Zq81", " <key> | <key>"),
        ("; cc_entrypoint=cli; cch= | b791f;", "; cc_entrypoint=cli; cch= | b791f;"),
        (" session 123e4567-e89b-12d3-a456-426 | 614174000", " session 123e4567-e89b-12d3-a456-426 | 614174000"),
    ],
)
def test_a_secret_across_the_bar_or_longer_than_the_quote_is_hidden(printed: str, shown: str) -> None:
    text = "slot update_slots: id  0 | task 9 | new: ..."
    evidence = sanitize.mask(finding_of(text + printed)).evidence[0].text
    assert evidence == text + shown


def finding_of(text: str) -> Finding:
    """A finding with ``text`` as its only line."""
    line = Evidence("server.log", 0, 1, text, "primary", "")
    return Finding("CD102", "volatile-prefix", "note", "low", "", [0], 1, [line], Cost(0, None), "", [], None, [], [])


@pytest.mark.sweep
def test_diff_hides_a_secret_in_which_the_prompts_diverge(tmp_path: Path) -> None:
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    a.write_text("The key is sk-ant-api03-Zq81kkTTvv29sLLm and that is all there is to say.")
    b.write_text("The key is sk-ant-api03-Zq81kkXXvv29sLLm and that is all there is to say.")
    for done in (run("diff", a, b), run("diff", a, b, "-f", "json")):
        assert done.returncode == 1
        assert b"TTvv" not in done.stdout
        assert b"XXvv" not in done.stdout
        assert b"29sLLm" not in done.stdout


@pytest.mark.sweep
def test_an_explained_line_hides_secrets() -> None:
    line = "0.00.010.665 I srv    load_model: loading model '/home/zqjane/models/x.gguf'"
    for done in (run("explain", "--line", line), run("explain", "--line", line, "-f", "json")):
        assert done.returncode == 0
        assert b"/home/<user>/models/x.gguf" in done.stdout
        assert b"zqjane" not in done.stdout
        if done.stdout.startswith(b"{"):
            assert json.loads(done.stdout)["readings"][0]["fields"][0]["text"] == "/home/<user>/models/x.gguf"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("clientSecret=abcdefgh12 x", "clientSecret=<secret> x"),
        ("PGPASSWORD=hunter2 psql", "PGPASSWORD=<secret> psql"),
        ('"private_key": "abcd1234"', '"private_key": "<secret>"'),
        ("https://x.y/a?key=AbCd1234&b=1", "https://x.y/a?key=<secret>&b=1"),
        ("--hf-token abcdEF12 -c 1", "--hf-token <secret> -c 1"),
        ("Authorization: Token abcdef0123456789", "Authorization: Token <token>"),
        ("redis://:pa55w0rd@host:6379/0", "redis://:<password>@host:6379/0"),
        ("postgres://u:p@ss/w0rd@db:5432/x", "postgres://<user>:<password>@db:5432/x"),
        ("%2Fhome%2Fzq%2Fx", "%2Fhome%2F<user>%2Fx"),
        ("https://hooks.slack.com/services/T00/B00/XXXX", "https://hooks.slack.com/services/<secret>"),
        ('{\\"api_key\\": \\"abcd1234efgh\\"}', '{\\"api_key\\": \\"<secret>\\"}'),
        ("SG.abcdefgh.ijkl xai-abcdefgh1", "SG.<key> xai-<key>"),
    ],
)
def test_secrets_in_settings_addresses_and_headers(text: str, shown: str) -> None:
    assert hidden(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "n_tokens = 4000, memory_seq_rm [0, end)",
        "task.n_tokens = 1234, n_keep = 0",
        "http://localhost:8080/a",
        "x-anthropic-billing-header: cc_version=2.1.37.abc; cch=a1b2c;",
        "special token: <|im_end|>",
        "keep the token as it was",
    ],
)
def test_what_proves_a_finding_stays(text: str) -> None:
    assert hidden(text) == text


NAMES = "hf_AbCdEfGhIjKlMnOpQrSt", "bob@example.com", "sk-ant-api03-abcdefghijklmnop", "pw12345"


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FORMATS)
def test_the_name_of_a_server_hides_its_secrets(name: str) -> None:
    """A wrapper may call a server anything, and it comes before every line."""
    origin = f"m1 {NAMES[0]} {NAMES[1]} https://u:{NAMES[3]}@h {NAMES[2]}"
    log = b"".join(f"[{who}] {line}\n".encode() for who in (origin, "m2") for line in LOG.decode().splitlines())
    listener = EventStream() if name == "jsonl" else None
    analyzer = Analyzer(listener=listener)
    analyzer.open("server.log")
    analyzer.feed(log)
    report = analyzer.finish()
    assert {s.origin for s in report.sessions} == {origin, "m2"}
    out = io.BytesIO()
    if listener is None:
        write(name, report, out, Appearance())
    else:
        out.writelines(listener.close(report))
    assert out.getvalue()
    assert not any(secret.encode() in out.getvalue() for secret in NAMES)
