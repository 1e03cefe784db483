"""Counters that Prometheus has stored, and whatever answers in its place."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from command import run
from conftest import FIXTURES

from cachedoctor.doctor.extras.prometheus_counters import stored_counters
from cachedoctor.inputs import http_requests
from cachedoctor.inputs.metrics import dump as dump_spans
from cachedoctor.inputs.metrics import dumps
from cachedoctor.inputs.metrics.dump import Dump
from cachedoctor.model import CacheDoctorError, Counters

RANGE = (FIXTURES / "vllm" / "prometheus_range.json").read_bytes()
"""What Prometheus 2.42 answered of a server of 1,000 tokens a second, which began again after the first moment."""
LOG = FIXTURES / "vllm" / "vllm032_dense_healthy.log"

Page = Callable[[str], tuple[int, bytes]]


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Who asked did not wait."""


class Web:
    """A web server whose page for a path is made by ``page``."""

    def __init__(self, page: Page) -> None:
        self.asked: list[tuple[str, str | None]] = []
        web = self

        class _Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.asked.append((self.path, self.headers.get("Authorization")))
                status, body = page(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = _Quiet(("127.0.0.1", 0), _Handler)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        self.url = f"http://{self.host}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def web() -> Iterator[Callable[[Page], Web]]:
    servers: list[Web] = []

    def make(page: Page) -> Web:
        servers.append(Web(page))
        return servers[-1]

    yield make
    for one in servers:
        one.server.shutdown()
        one.server.server_close()


def dump(tokens: int, started: float = 100.0) -> bytes:
    """/metrics of a server that reused half of what it was sent."""
    labels = 'engine="0",model_name="m"'
    half = tokens // 2
    return (
        f"vllm:prompt_tokens_total{{{labels}}} {tokens}\n"
        f'vllm:prompt_tokens_by_source_total{{{labels},source="local_cache_hit"}} {half}\n'
        f'vllm:prompt_tokens_by_source_total{{{labels},source="local_compute"}} {tokens - half}\n'
        f"process_start_time_seconds {started}\n"
    ).encode()


def moments(*pages: bytes, url: str = "http://127.0.0.1:9090") -> list[Dump]:
    """Dumps of one server at several moments, as Prometheus gives them."""
    found = [dump for at, page in enumerate(pages) for dump in dumps.servers([page], f"{url} at {at}")]
    for one in found:
        one.asked = url
    return found


def counted(*pages: bytes) -> list[list[Counters]]:
    """Lives of a server that had these pages, one after the other."""
    (lives,) = dump_spans.lives(moments(*pages))
    return lives


# ---- several moments


def test_of_many_moments_the_first_and_the_last_count() -> None:
    ((only,),) = counted(dump(100), dump(700), dump(1100), dump(1500))
    assert (only.prompt_tokens, only.computed, only.cached_local) == (1400, 700, 700)
    assert only.since is not None
    assert only.since.startswith("http://127.0.0.1:")


def test_a_server_that_began_again_is_counted_from_its_start() -> None:
    """What it counted before the first moment of its life is not lost."""
    (first,), (second,) = counted(dump(100), dump(700), dump(300, 500.0), dump(900, 500.0))
    assert (first.prompt_tokens, first.since is None) == (600, False)
    assert (second.prompt_tokens, second.since) == (900, None)


def test_two_servers_with_one_model_are_two() -> None:
    both = moments(dump(100, 100.0), url="http://a") + moments(dump(900, 900.0), url="http://b")
    assert sorted(lives[0][0].prompt_tokens or 0 for lives in dump_spans.lives(both)) == [100, 900]


def test_credentials_are_sent_and_never_shown(web: Callable[[Page], Web]) -> None:
    server = web(lambda path: (200, RANGE))
    found = stored_counters(f"http://me:s%40cret@{server.host}/prometheus")
    ((path, authorization),) = server.asked
    assert path.startswith("/prometheus/")
    assert authorization == "Basic " + base64.b64encode(b"me:s@cret").decode()
    assert found
    assert "cret" not in repr(found)


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, b"", "answered 401 Unauthorized"),
        (500, b"Traceback ...", "answered 500"),
        (302, b"", "answered 302"),
        (200, b"<html>sorry</html>", "does not answer like Prometheus"),
        (200, b"", "does not answer like Prometheus"),
    ],
)
def test_another_answer_is_one_line(web: Callable[[Page], Web], status: int, body: bytes, says: str) -> None:
    with pytest.raises(CacheDoctorError, match=says) as caught:
        stored_counters(web(lambda path: (status, body)).url)
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_slow_answers_end(web: Callable[[Page], Web]) -> None:
    going = threading.Event()
    server = web(lambda path: (200, b"x" if going.wait(20) else b""))
    with pytest.raises(CacheDoctorError, match="no complete response within 0 s"):
        http_requests.get(server.url, 0.05)
    going.set()


@pytest.mark.parametrize(
    "url", ["http://", "http://[::1", "http://127.0.0.1:99999/", "http://127.0.0.1:1/", "http://a b/"]
)
def test_an_address_that_is_none_is_one_line(url: str) -> None:
    with pytest.raises(CacheDoctorError) as caught:
        stored_counters(url)
    assert "\n" not in caught.value.message


# ---- Prometheus


def test_a_range_is_what_was_counted_in_it(web: Callable[[Page], Web]) -> None:
    """The first moment is of the life before, of which nothing else is in the range."""
    server = web(lambda path: (200, RANGE))
    (lives,) = dump_spans.lives(stored_counters(server.url, 7200.0, '{job="vllm"}'))
    (first,), (second,) = lives
    assert (first.prompt_tokens, first.reused, first.cached_local) == (8000, 5600, 5600)
    assert (second.prompt_tokens, second.reused, second.computed) == (31000, 21700, 9300)
    assert [bar.requests for bar in second.computed_per_request] == [15, 16, 0]
    (path, _) = server.asked[0]
    asked = parse_qs(urlsplit(path).query)
    assert asked["query"] == ['{__name__=~"(vllm|sglang)[:_].*|process_start_time_seconds", job="vllm"}']
    assert float(asked["end"][0]) - float(asked["start"][0]) == 7200.0
    assert asked["step"] == ["120.0"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<html>", "does not answer like Prometheus"),
        (b"[" * 100_000, "does not answer like Prometheus"),
        (b'{"status":"error","errorType":"bad_data","error":"parse error"}', "Prometheus answered: parse error"),
        (b'{"status":"success","data":{"resultType":"vector","result":[]}}', "did not return a range of values"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":3}]}}', "does not answer like"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "no counters of vLLM or SGLang"),
    ],
)
def test_what_is_not_a_range_is_one_line(web: Callable[[Page], Web], body: bytes, says: str) -> None:
    with pytest.raises(CacheDoctorError, match=says):
        stored_counters(web(lambda path: (200, body)).url)


def test_values_that_are_not_numbers_are_left_out() -> None:
    body = {"metric": {"__name__": "vllm:x"}, "values": [[1, "NaN"], [2, "many"], [3, "7"]]}
    answer = {"status": "success", "data": {"resultType": "matrix", "result": [body]}}
    found = dumps.moments(json.dumps(answer).encode(), "p")
    assert [moment for moment, _ in found] == [1, 3]


# ---- the command


def test_a_log_is_analysed_though_nobody_answers() -> None:
    """One line, the report all the same, and a status that tells."""
    done = run("analyze", LOG, "--prometheus", "http://127.0.0.1:1")
    assert done.returncode == 2
    assert b"vLLM 0.32.0" in done.stdout
    assert done.stderr.count(b"\n") == 1
    assert b"cannot be fetched" in done.stderr


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--prometheus", "http://127.0.0.1:1"], b"cannot be fetched"),
        (["--metrics", "http://127.0.0.1:1/metrics", LOG], b"is an address, not a file"),
        (["--prometheus", "localhost:9090"], b"is not an address"),
        (["--prometheus", "http://127.0.0.1:1", "--since", "yesterday"], b"is not a duration"),
        (["--match", 'job="x"', LOG], b"--match: needs --prometheus"),
    ],
)
def test_wrong_usage_is_one_line(args: list[object], says: bytes) -> None:
    done = run("analyze", *args)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not done.stdout


@pytest.mark.sweep
def test_counters_of_prometheus_are_beside_the_log(web: Callable[[Page], Web]) -> None:
    server = web(lambda path: (200, RANGE))
    done = run("analyze", LOG, "--prometheus", server.url, "-f", "json")
    assert done.returncode == 0
    found = [counters["prompt_tokens"] for one in json.loads(done.stdout)["sessions"] for counters in one["counters"]]
    assert sorted(found) == [8000, 31000]


def test_a_counter_that_fell_while_it_was_not_there_is_unknown() -> None:
    """Dumps without it lie between, so that no two neighbours tell of a restart."""
    other = b'vllm:request_success_total{engine="0",model_name="m"} 5\n'
    ((only,),) = counted(dump(900) + other, other, dump(100) + other)
    assert (only.prompt_tokens, only.requests) == (None, 0)
