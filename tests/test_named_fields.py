"""Lines of forks that print more fields than llama-server does are read by the names of the fields."""

from __future__ import annotations

import pytest
from conftest import report_of

from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.engines.catalogue.reading import WithOthers
from cachedoctor.engines.catalogue.scanner import Scanner
from cachedoctor.engines.llamacpp.tracker import PLAN, catalogue
from cachedoctor.model import Segment

FORK = """\
3.11.883.089 W slot update_slots: id  0 | task 986 | restored context checkpoint (pos_min = 9675, pos_max = 9675, \
pos_end = 9676, n_tokens = 9676, n_past = 9676, size = 81.896 MiB)
3.11.883.092 W slot update_slots: id  0 | task 986 | erased invalidated context checkpoint (pos_min = 11718, \
pos_max = 11718, pos_end = 11719, n_tokens = 11719, n_swa = 0, prefix_end = 11586, pos_next = 9676, size = 85.925 MiB)
"""
PREFIX = "slot update_slots: id  0 | task 986 | "


def events(text: str) -> list[tuple[str, dict[str, object]]]:
    scanner = Scanner(catalogue(), PLAN)
    return [(event.message, event.fields) for event in scanner.scan(Segment(None, text.encode(), 1))]


def test_fields_of_a_fork_are_read_by_their_names() -> None:
    (first, restored), (second, erased) = events(FORK)
    assert (first, second) == ("ckpt_restored", "ckpt_erased")
    assert restored == {"pos_min": 9675, "pos_max": 9675, "n_tokens": 9676, "n_past": 9676, "size": 81.896}
    wanted = {"pos_min": 11718, "pos_max": 11718, "n_tokens": 11719, "n_swa": 0, "pos_next": 9676, "size": 85.925}
    assert erased == wanted
    assert isinstance(restored, WithOthers)


@pytest.mark.parametrize(
    "message",
    [
        "restored context checkpoint (pos_min = 5, pos_max = 5, pos_end = 6, pos_max = 9, size = 1.000 MiB)",
        "restored context checkpoint (pos_min = 5, pos_end = 6, size = 1.000 MiB)",
        "restored context checkpoint (pos_min = 5, pos_max = 5, because of text, size = 1.000 MiB)",
        "restored context checkpoint (pos_min = 5, pos_max = x5, pos_end = 6, size = 1.000 MiB)",
    ],
    ids=["a name twice", "a name missing", "text between", "no number"],
)
def test_what_is_not_a_list_of_all_fields_is_not_read(message: str) -> None:
    assert events(f"{PREFIX}{message}\n") == []


def test_the_limit_of_a_list_is_read_before_the_fields() -> None:
    line = "created context checkpoint 2 of 32 (pos_min = 7, pos_max = 7, kind = full, n_tokens = 8, size = 0.016 MiB)"
    [(message, fields)] = events(f"{PREFIX}{line}\n")
    assert message == "ckpt_created"
    assert fields == {"index": 2, "max": 32, "pos_min": 7, "pos_max": 7, "n_tokens": 8, "size": 0.016}


@pytest.mark.parametrize("lines", [0, 600], ids=["an excerpt", "a whole log"])
def test_a_fork_restores_a_checkpoint(lines: int) -> None:
    log = "3.10.100.000 I srv  update_slots: all slots are idle\n" * lines + FORK
    redactor = Redactor()
    copy = redactor.feed(log.encode()) + redactor.finish()
    for text in (log, copy.decode()):
        report = report_of(text)
        [request] = report["requests"]
        assert (request["task"], request["cached_tokens"]) == (986, 9676)
        [session] = report["sessions"]
        assert session["build_min"] is None, "a fork's wording is of no build"
    assert "pos_end" not in copy.decode()
    assert "11586" not in copy.decode()
