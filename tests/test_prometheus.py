"""The text format of Prometheus: what is read, what is left out, what is refused."""

from __future__ import annotations

import math

import pytest
from hostile_inputs import DUMPS

from cachedoctor.inputs.metrics import prometheus
from cachedoctor.inputs.metrics.prometheus import Exposition, Sample
from cachedoctor.model import CacheDoctorError


def read(text: str | bytes, wanted: str = "") -> Exposition:
    data = text if isinstance(text, bytes) else text.encode()
    found = prometheus.read([data], "m.txt", lambda name: name.startswith(wanted))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "sample"),
    [
        ("a 1", Sample("a", {}, 1.0, None)),
        ("  a\t1.5e+3  ", Sample("a", {}, 1500.0, None)),
        ("a{} 2", Sample("a", {}, 2.0, None)),
        ("a{}2", Sample("a", {}, 2.0, None)),
        ('a:b_c{x="1",y="2"} .5', Sample("a:b_c", {"x": "1", "y": "2"}, 0.5, None)),
        ('a { x = "1" , } 3', Sample("a", {"x": "1"}, 3.0, None)),
        (r'a{x="\"\\n\n}{,=#"} 3', Sample("a", {"x": '"\\n\n}{,=#'}, 3.0, None)),
        (r'a{x="\t"} 3', Sample("a", {"x": r"\t"}, 3.0, None)),  # no escape of this format: as it stands
        ("a 1 1795218226890", Sample("a", {}, 1.0, 1795218226.89)),  # milliseconds
        ("a 1 1795218226.5", Sample("a", {}, 1.0, 1795218226.5)),  # seconds, as OpenMetrics has it
        ('a_bucket{le="1"} 17 # {trace_id="x"} 0.67 1.5', Sample("a_bucket", {"le": "1"}, 17.0, None)),
        ("a +Inf", Sample("a", {}, math.inf, None)),
        ("a -inf", Sample("a", {}, -math.inf, None)),
        ('a{x="ä"} 1', Sample("a", {"x": "ä"}, 1.0, None)),
    ],
)
def test_a_sample(line, sample):
    assert read(f"{line}\n").samples == [sample]
    assert read(f"{line}\r\n# EOF\r\n").samples == [sample]
    assert read(line).samples == [sample]  # the end of the file ends the line, too


def test_nan():
    assert math.isnan(read("a NaN\n").samples[0].value)


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a b",
        "a1b=2 c",
        "1a 2",
        "a 1 2 3",
        "a 0x10",
        'a{x="1} 2',
        'a{x="1"',
        'a{x="1"y="2"} 3',
        'a{x="1",x="2"} 3',  # which of the two?
        "a{x=1} 2",
        'a{1="x"} 2',
        "a{b c} 2",
        "INFO 11-20 23:44:25 [core.py:133] Initializing a V1 LLM engine",
        "a " + "9" * 70_000,
    ],
)
def test_a_line_that_breaks_the_grammar_is_left_out(line):
    found = read(f"good 1\n{line}\nfine 2\n")
    assert [sample.name for sample in found.samples] == ["good", "fine"]
    assert (found.good, found.bad) == (2, 1)


def test_types_and_helps():
    found = read(
        "# HELP a_total Tokens, in \\\\ and more.\n# TYPE a_total counter\na_total 1\n"
        "# TYPE b counter\n# UNIT b seconds\nb_total 1\n# any other comment\n#\n# HELP c\nc 1\n"
    )
    assert found.type_of("a_total") == "counter"
    assert found.type_of("b_total") == "counter"  # OpenMetrics
    assert found.type_of("c") is None
    assert found.help_of("a_total").startswith("Tokens, in ")
    assert found.help_of("c") == ""
    assert found.bad == 0


def test_what_is_not_wanted_is_counted_and_not_kept():
    found = read('a{x="1"} 1\nb 2\n', "b")
    assert [sample.name for sample in found.samples] == ["b"]
    assert found.good == 2


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_it_may_be_cut_anywhere(size):
    text = b'# TYPE a counter\r\na{x="1\\"}"} 1\r\n\nb 2 5\nnonsense here\nc 3'
    cut = prometheus.read([text[at : at + size] for at in range(0, len(text), size)], "m.txt", lambda _: True)
    assert cut == read(text)
    assert cut is not None
    assert len(cut.samples) == 3


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# HELP a b\n", "what is this?\n", "a 1\n" + "this is a log, you see\n" * 2, '{"usage": 1}\n']
)
def test_what_is_not_a_dump(text):
    assert prometheus.read([text.encode()], "m.txt", lambda _: True) is None


def test_a_log_is_left_after_a_thousand_lines():
    read_so_far = 0

    def endless():
        nonlocal read_so_far
        while True:
            read_so_far += 1
            yield b"INFO 11-20 23:44:25 [core.py:133] no sample\n"

    assert prometheus.read(endless(), "m.txt", lambda _: True) is None
    assert read_so_far < 1_100


@pytest.mark.sample(3)
@pytest.mark.parametrize(("head", "unit"), DUMPS)
def test_what_is_made_to_cost_time(head, unit):
    """Every line is a sample or none, however long it is made."""
    found = prometheus.read([b"good 1\n" * 20_001, b"\n", head, unit * 20_000, b"\nfine 1\n"], "m", lambda _: True)
    assert found is not None
    assert (found.samples[0].name, found.samples[-1].name) == ("good", "fine")


def test_a_line_without_an_end_takes_no_memory():
    def chunks():
        yield b'a 1\nb 1\nc{x="'
        for _ in range(1_000):
            yield b"x" * 65_536
        yield b'"} 1\nd 2\n'

    found = prometheus.read(chunks(), "m.txt", lambda _: True)
    assert found is not None
    assert [sample.name for sample in found.samples] == ["a", "b", "d"]
    assert found.bad == 1


def test_more_series_than_a_server_has(monkeypatch):
    monkeypatch.setattr(prometheus, "MAX_KEPT", 1_000)
    line = b'a{x="' + b"1" * 90 + b'"} 1\n'
    assert prometheus.read([line * 10], "m.txt", lambda _: True) is not None
    with pytest.raises(CacheDoctorError, match=r"m\.txt: contains more series"):
        prometheus.read([line * 11], "m.txt", lambda _: True)
    assert prometheus.read([line * 11], "m.txt", lambda _: False) is not None
