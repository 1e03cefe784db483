"""Builds the tokenizer that llama.cpp would build from a GGUF. Knows its metadata keys; reads no prompt."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.tokenizers.bpe import SPACE, Change, Pipeline, Whole, WordEncoder, split_units
from cachedoctor.prompts.tokenizers.gguf import chat_template, read_metadata
from cachedoctor.prompts.tokenizers.pretokens import TABLE, Cutter, Special, Specials

_INSTEAD = "give the model's tokenizer.json, or http://host:port of a server that has it loaded"
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_BY_CHARACTER = ("gemma4", "sarvam-moe")
# llama.cpp treats these as control tokens whatever their type says, because many files have it wrong
_ALWAYS_SPECIAL = (
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|> "
    "<EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> [e~[ "
    "<｜end▁of▁sentence｜> <|channel|> <|message|> <|start|> <|constrain|>"
)
# and these where the file does not name the token for filling in the middle
_FILL_IN = {
    "prefix": "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|>",
    "suffix": "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|>",
    "middle": "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|>",
    "fim_pad": "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]",
    "fim_rep": "<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>",
    "fim_sep": "<|file_sep|>",
}


def from_gguf(path: Path) -> Pipeline:
    """Build the tokenizer of a GGUF; raises ``CacheDoctorError`` for a damaged file and for kinds it cannot follow."""
    meta = read_metadata(path)
    kind = meta.get("tokenizer.ggml.model")
    tokens = _strings(meta, "tokens", path)
    vocab = {text or f"[EMPTY_{at}]": at for at, text in enumerate(tokens)}
    if kind == "llama":
        made = _sentencepiece(meta, vocab, path)
    elif kind in ("gpt2", "gemma4"):
        made = _by_merges(meta, vocab, path)
    else:
        raise CacheDoctorError(f"{path} has a tokenizer of the kind {kind!r}, which is not supported", _INSTEAD)
    words, cut, change, bos = made
    specials = Specials(_specials(meta, tokens), longest_first=True)
    tokenizer = Pipeline(path.name, (specials, None), (None, change), cut, words, bos=_text(tokens, bos))
    tokenizer.chat_template = chat_template(meta, path)
    return tokenizer


_Made = tuple[WordEncoder, Callable[[str], list[str]], Change | None, int | None]


def _by_merges(meta: dict[str, Any], vocab: dict[str, int], path: Path) -> _Made:
    pre = "gemma4" if meta.get("tokenizer.ggml.model") == "gemma4" else meta.get("tokenizer.ggml.pre") or "default"
    row = TABLE.get(str(pre))
    if row is None:
        raise CacheDoctorError(f"{path} wants the pre-tokenizer {str(pre)[:60]!r}, which is not supported", _INSTEAD)
    ranks: dict[tuple[str, str], float] = {}
    for rank, pair in enumerate(_strings(meta, "merges", path)):
        # the first half may itself begin with the blank that separates the halves
        middle = pair.find(" ", 1)
        if middle > 0:
            ranks.setdefault((pair[:middle], pair[middle + 1 :]), rank)
    by_character = pre in _BY_CHARACTER
    whole: Whole = "always" if row.ignore_merges else "newlines" if pre == "gemma4" else "never"
    words = WordEncoder(vocab, lambda a, b: ranks.get((a, b)), bytelevel=not by_character, whole=whole)
    cut: Callable[[str], list[str]] = Cutter(row.patterns)
    if by_character:
        lines, units = cut, split_units(vocab)
        cut = lambda text: [unit for line in lines(text) for unit in units(line)]  # noqa: E731
    adds_bos = pre == "gemma4" or bool(meta.get("tokenizer.ggml.add_bos_token", row.add_bos))
    return words, cut, _escape if by_character else None, _bos(meta, 11) if adds_bos else None


def _sentencepiece(meta: dict[str, Any], vocab: dict[str, int], path: Path) -> _Made:
    scores = meta.get("tokenizer.ggml.scores")
    if not isinstance(scores, array) or len(scores) < len(vocab):
        raise CacheDoctorError(f"{path} has no scores for its tokens", _INSTEAD)

    def rank(left: str, right: str) -> float | None:
        token = vocab.get(left + right)
        return None if token is None else -float(scores[token])

    change = _escape_with_prefix if meta.get("tokenizer.ggml.add_space_prefix", True) else _escape
    adds_bos = meta.get("tokenizer.ggml.add_bos_token", True)
    words = WordEncoder(vocab, rank, bytelevel=False, whole="never")
    return words, split_units(vocab), change, _bos(meta, 1) if adds_bos else None


def _escape(text: str, _begins: bool) -> tuple[str, None]:
    return text.replace(" ", SPACE), None


def _escape_with_prefix(text: str, _begins: bool) -> tuple[str, list[int]]:
    return SPACE + text.replace(" ", SPACE), [0, *range(len(text))]


def _strings(meta: dict[str, Any], key: str, path: Path) -> list[str]:
    found = meta.get(f"tokenizer.ggml.{key}")
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        hint = "a multimodal projector has none; a split model has them in its first file"
        raise CacheDoctorError(f"{path} holds no tokenizer ({key} missing)", hint)
    return found


def _bos(meta: dict[str, Any], default: int) -> int:
    found = meta.get("tokenizer.ggml.bos_token_id", default)
    return found if isinstance(found, int) else default


def _text(tokens: list[str], token: int | None) -> str | None:
    return tokens[token] if token is not None and 0 <= token < len(tokens) else None


def _specials(meta: dict[str, Any], tokens: list[str]) -> list[Special]:
    types = meta.get("tokenizer.ggml.token_type")
    always = set(_ALWAYS_SPECIAL.split())
    # in Gemma 4 this one is ordinary text
    if "<|tool_response>" in tokens:
        always.discard("</s>")
    for role, texts in _FILL_IN.items():
        keys = (f"tokenizer.ggml.{role}_token_id", f"tokenizer.ggml.fim_{role[:3]}_token_id")
        if not any(key in meta for key in keys):
            always.update(texts.split())
    swallows = re.search("phi-?3", str(meta.get("general.name", "")).lower()) is not None
    marked = dict(enumerate(types)) if isinstance(types, array) else {}
    return [
        Special(text, at, rstrip=swallows and text not in ("<unk>", "<s>", "<|endoftext|>"))
        for at, text in enumerate(tokens)
        if text in always or marked.get(at) in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]
