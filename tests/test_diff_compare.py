"""The comparison of two prompts with numbers worked out by hand, on a tokenizer of one token per word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cachedoctor.model import CacheDoctorError, Edit, PromptDiff
from cachedoctor.prompts import run_diff
from cachedoctor.prompts.align import align
from cachedoctor.prompts.compare_prompts import DiffOptions, _user_starts, compare, describe, digest, hashed
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import PlacedSpan, Prompt
from cachedoctor.prompts.tokenizers.base import TokenArrays

PROMPTS = Path(__file__).parent.parent / "fixtures" / "prompts"


class Words:
    """A token is a word and the blank before it; ``bos`` tokens come before every prompt."""

    name = "words"
    exact = True
    local = False
    chat_template: str | None = None

    def __init__(self, bos: int = 0) -> None:
        self.bos = bos

    def encode(self, text: str) -> TokenArrays:
        found = list(re.finditer(r"\s*\S+|\s+$", text))
        return TokenArrays([match.group() for match in found], [match.start() for match in found])

    def leading(self, text: str) -> int:
        return self.bos


def diff(a: str, b: str, bos: int = 0, **options: int | bool) -> PromptDiff:
    return compare(Prompt("a", "text", a), Prompt("b", "text", b), Words(bos), DiffOptions(**options))  # type: ignore[arg-type]


def test_numbers_of_a_replaced_word() -> None:
    """Six words, the fourth is another one."""
    found = diff("one two\nthree four five six", "one two\nthree nine five six seven", context=2)
    first = found.first
    assert first is not None
    assert (found.a.tokens, found.b.tokens, found.a.chars, found.b.chars) == (6, 7, 27, 33)
    assert (first.token, first.char, first.line, first.column) == (3, 14, 2, 7)
    assert (first.a, first.b) == (" four five six", " nine five six seven")
    assert (found.common_prefix_tokens, found.common_suffix_tokens, found.exact) == (3, 0, True)
    assert found.reusable == {"attention": 3, "swa": 1, "hybrid": 2}  # a checkpoint after 2, 4 before the end
    assert found.edits is found.summary is None
    excerpt = found.excerpt
    assert excerpt is not None
    assert (excerpt.before, excerpt.a, excerpt.after_a) == (" two\nthree", " four five", " six")
    assert (excerpt.b, excerpt.after_b) == (" nine five", " six seven")


def test_a_common_end_is_counted_after_the_prefix_only() -> None:
    """A word that is in the prefix is not in the suffix as well."""
    assert diff("x x x", "x x x x x").common_suffix_tokens == 0
    found = diff("a b c d e", "a b X d e")
    assert (found.common_prefix_tokens, found.common_suffix_tokens) == (2, 2)


def test_text_that_comes_after_the_difference_again() -> None:
    """Nothing of a last message that was replaced; all of a document after another question."""
    document = " ".join(f"Berth {at} has been free since day {at * 7 % 31}." for at in range(30))
    assert diff("Hello. One draft of the answer", "Hello. Quite another text").sent_again == 0
    assert diff("Hello.", "Hello. And more").sent_again == 0
    again = diff(f"Who left? {document}", f"Which is the oldest? {document}").sent_again
    assert again is not None
    assert 0.8 * len(document) < again <= len(document)


def test_a_leading_token_of_the_server_counts() -> None:
    """Indexes are those of the server, whose prompt begins with a token that is not in the text."""
    found = diff("one two", "one three", bos=1, full=True)
    assert found.first is not None
    assert (found.first.token, found.common_prefix_tokens, found.a.tokens) == (2, 2, 3)
    assert found.edits == [Edit("equal", (0, 1), (0, 1)), Edit("replace", (1, 2), (1, 2))]


def test_equal_prompts_still_cost_a_token() -> None:
    """The server computes the last token again; a recurrent memory goes back to its checkpoint, 4 before the end."""
    text = " ".join(map(str, range(1000)))
    found = diff(text, text)
    assert found.equal
    assert found.first is None
    assert found.reusable == {"attention": 999, "swa": 995, "hybrid": 996}


def test_only_images_differ() -> None:
    """Equal text is not an equal prompt."""
    a, b = (Prompt(name, "openai-chat", "look here", images=[name * 8]) for name in "ab")
    found = compare(a, b, Words(), DiffOptions())
    assert not found.equal
    assert found.first is not None
    assert (found.first.kind, found.first.token) == ("image", 2)
    assert not found.exact  # a body that no template rendered


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (range(9), range(9), "the tokens are equal"),
        (range(9), range(12), "only 3 tokens were appended"),
        (range(9), range(4, 9), "the first 4 tokens were dropped, and the rest is equal; nothing follows"),
        (range(9), range(4, 12), "the first 4 tokens were dropped, and the rest is equal; 3 new tokens follow"),
        (range(9), [0, 1, 70, 71, *range(2, 9)], "2 tokens were inserted at token 2; nothing follows"),
        (range(9), [0, 1, *range(5, 9)], "3 tokens were removed at token 2; nothing follows"),
        (range(9), range(90, 99), "the prompts have nothing in common"),
        (
            range(1200),
            [*range(1000), *range(2000, 2300)],
            "everything after token 1,000 was replaced (200 tokens removed)",
        ),
        (range(9), [0, 1, 70, 3, 4, 71, 6, 7, 8], "2 places differ: 2 tokens removed, 2 inserted, 7 equal"),
    ],
)
def test_what_a_script_amounts_to_in_words(a: range, b: range | list[int], says: str) -> None:
    assert describe(align.summary(align.edit_script(list(a), list(b)))) == says


@pytest.mark.parametrize("name", ["billing-header", "anthropic-billing-header"])
def test_the_billing_header_is_named(name: str) -> None:
    """The header, its field, and the client's switch that turns it off."""
    (found,) = run_diff.answer(str(PROMPTS / name / "a.json"), str(PROMPTS / name / "b.json"), run_diff.DiffJob())
    first = found.first
    assert first is not None
    assert (first.kind, first.field) == ("billing-header", "cch")
    assert "export CLAUDE_CODE_ATTRIBUTION_HEADER=0" in [c for advice in first.advice for c in advice.commands]


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(path.name for path in PROMPTS.iterdir() if path.is_dir()))
def test_swapping_the_prompts_mirrors_the_answer(name: str) -> None:
    """Same place and numbers; sides and edits change places."""
    paths = [str(PROMPTS / name / f"{side}.json") for side in "ab"]
    for options in (run_diff.DiffJob(full=True), run_diff.DiffJob(full=True, template=str(PROMPTS / "template.jinja"))):
        ours, theirs = ([run_diff._load(p, None)[0] for p in order] for order in (paths, paths[::-1]))
        files = ModelFiles(template=options.template)
        cutter = files.cutter
        ours, theirs = ([run_diff.rendered(p, options, files) for p in side] for side in (ours, theirs))
        one, two = (compare(*side, cutter, DiffOptions(full=True)) for side in (ours, theirs))
        assert one.first is not None
        assert two.first is not None
        assert (one.first.token, one.first.char, one.first.line) == (two.first.token, two.first.char, two.first.line)
        assert (one.first.a, one.first.b) == (two.first.b, two.first.a)
        assert one.common_suffix_tokens == two.common_suffix_tokens
        mirror = {"insert": "delete", "delete": "insert"}
        assert one.edits is not None
        assert two.edits is not None
        if not any(edit.op == "move" for edit in one.edits):
            assert [(mirror.get(e.op, e.op), e.b, e.a) for e in one.edits] == [(e.op, e.a, e.b) for e in two.edits]


def test_user_messages_begin_at_the_marker_of_the_template() -> None:
    """As the server finds them: among the tokens, quoted ones included; without a template, by the request."""
    text = "<|im_start|>system hi <|im_end|> <|im_start|>user one <|im_end|> <|im_start|>assistant two <|im_end|> "
    text += "<|im_start|>user three"
    prompt = Prompt("a", "slots", text)
    assert _user_starts(prompt, Words().encode(text), 0) == [3, 9]
    body = {"messages": [{"role": "system"}, {"role": "user"}, {"role": "assistant"}, {"role": "user"}]}
    spans = [
        PlacedSpan(0, 2, "messages[0].content"),
        PlacedSpan(3, 5, "messages[1].content"),
        PlacedSpan(9, 11, "messages[3].content"),
    ]
    prompt = Prompt("a", "openai-chat", "aa bb cc dd", spans, body)
    assert _user_starts(prompt, Words().encode(prompt.text), 1) == [2, 4]


def test_hashes_stand_for_text() -> None:
    """Length and hash are those of the text; a label of the prompt goes, numbers stay."""
    plain = diff("Tokens used: 12 of many\n", "Tokens used: 13 of many\n")
    found = hashed(plain)
    assert plain.first is not None
    assert found.first is not None
    assert (plain.first.field, plain.explanation) == ("Tokens used", "a counter changed from 12 to 13")
    assert (found.first.field, found.explanation) == (digest("Tokens used"), "a counter changed")
    assert found.first.a == digest(plain.first.a)
    assert digest("abc") == "3 chars, sha256 ba7816bf8f01"
    assert found.excerpt is None
    assert found.first.token == plain.first.token


def test_a_tokenizer_of_another_model_is_refused_only_when_it_is_sure() -> None:
    """Its model's template does not know how the prompt begins, and it cuts that into pieces."""
    prompt, words = Prompt("a", "slots", "<|im_start|>user hi"), Words()
    run_diff.check_model(prompt, run_diff.DiffJob(), words)  # no template: nothing is known
    words.chat_template = "<|im_start|>{{ messages }}"
    run_diff.check_model(prompt, run_diff.DiffJob(), words)
    words.chat_template = "[INST]{{ messages }}"
    run_diff.check_model(prompt, run_diff.DiffJob(), words)  # a single token

    class Letters(Words):
        chat_template = "[INST]{{ messages }}"

        def encode(self, text: str) -> TokenArrays:
            return TokenArrays(list(text), list(range(len(text))))

    with pytest.raises(CacheDoctorError, match="not belong to the model"):
        run_diff.check_model(prompt, run_diff.DiffJob(), Letters())
    run_diff.check_model(prompt, run_diff.DiffJob(template="x.jinja"), Letters())
    run_diff.check_model(Prompt("a", "text", prompt.text), run_diff.DiffJob(), Letters())


def test_the_library_gives_the_same_answer() -> None:
    """`diff` is what the command calls."""
    import cachedoctor

    folder = Path(__file__).parent.parent / "fixtures/prompts/billing-header"
    found = cachedoctor.diff(folder / "a.json", folder / "b.json")
    assert not found.equal
    assert found.first is not None
    assert (found.first.kind, found.first.field) == ("billing-header", "cch")
    assert cachedoctor.diff(folder / "a.json", folder / "a.json").equal
