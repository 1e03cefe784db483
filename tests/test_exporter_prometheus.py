"""The exporter under a real Prometheus, where that is installed: what it scraped, and the alert that a fault fires."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Started, start, wait_for
from conftest import ROOT

import cachedoctor

PROMETHEUS = shutil.which("prometheus")
pytestmark = [pytest.mark.sweep, pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is not installed")]
LOG = ROOT / "fixtures" / "cases" / "volatile-prefix-hybrid" / "server.log"
SHORTER = [("[15m]", "[60s]"), ("for: 15m", "for: 2s"), ("> 10000", "> 100"), ("offset 15m", "offset 10s"), ("[14d]", "[5m]")]  # fmt: skip  # noqa: E501
"""What the alert rules wait for, in seconds in place of minutes."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Prometheus:
    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> float | None:
        found = self.get("query", query=expression)["result"]
        return float(found[0]["value"][1]) if found else None

    def ready(self) -> bool:
        try:
            return self.value("vector(1)") == 1
        except OSError:
            return False

    def firing(self) -> set[str]:
        alerts = self.get("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


@pytest.fixture
def exporter_port() -> int:
    return free_port()


@pytest.fixture
def prometheus(tmp_path: Path, exporter_port: int) -> Iterator[Prometheus]:
    rules = (ROOT / "contrib" / "monitoring" / "alerts.yml").read_text("utf-8")
    for long, short in SHORTER:
        assert long in rules
        rules = rules.replace(long, short)
    (tmp_path / "alerts.yml").write_text(rules)
    job = {"job_name": "cachedoctor", "static_configs": [{"targets": [f"127.0.0.1:{exporter_port}"]}]}
    each = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config = {"global": each, "rule_files": ["alerts.yml"], "scrape_configs": [job]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    server = subprocess.Popen(
        [str(PROMETHEUS), f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
         f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        found = Prometheus(port)
        wait_for(found.ready, "Prometheus")
        yield found
    finally:
        server.terminate()
        server.wait()


def test_what_prometheus_has_is_the_report_after_rotations_and_a_kill(
    prometheus: Prometheus, exporter_port: int, tmp_path: Path
) -> None:
    logs, lines = tmp_path / "logs", LOG.read_bytes().splitlines(keepends=True)
    logs.mkdir()
    log = logs / "server.log"
    log.touch()

    def begun() -> Started:
        listen, state = f"127.0.0.1:{exporter_port}", tmp_path / "state.json"
        return start("exporter", log, "--listen", listen, "--state", state, "--no-config", "-q")

    def counted() -> bool:
        time.sleep(0.5)
        return prometheus.value("sum(cachedoctor_log_lines_total)") == written

    written, step = 0, len(lines) // 6 + 1
    process = begun()
    try:
        for number in range(6):
            part = lines[number * step : (number + 1) * step]
            written += len(part)
            with log.open("ab") as file:
                file.writelines(part)
            wait_for(counted, "lines")
            if number == 1:
                log.rename(f"{log}.1")
                log.touch()
            elif number == 3:
                log.with_name("server.log.1").rename(f"{log}.2")
                shutil.copyfile(log, f"{log}.1")
                os.truncate(log, 0)
                process.kill()
                process.wait()
                process = begun()
        totals = cachedoctor.analyze(LOG).totals
        tokens = "sum(cachedoctor_prompt_tokens_total{outcome=~'%s'})"
        expected = [totals.requests, totals.avoidable_tokens, totals.processed_tokens]
        asked = ["sum(cachedoctor_requests_total)", tokens % "avoidable", tokens % "new|avoidable"]
        wait_for(lambda: time.sleep(0.5) or [prometheus.value(one) for one in asked] == expected, "totals")
        assert totals.avoidable_tokens > 0
        assert (prometheus.value(tokens % "reused") or 0) == totals.cached_tokens
        assert prometheus.value("sum(resets(cachedoctor_prompt_tokens_total[10m]))") == 0
        assert prometheus.value("sum(resets(cachedoctor_log_lines_total[10m]))") == 0
        wait_for(lambda: time.sleep(0.5) or "CachePromptTokensAvoidable" in prometheus.firing(), "alert")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
