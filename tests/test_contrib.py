"""What goes with the exporter and the stream: rules, dashboard, compose file, configurations of collectors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import LOG, run
from conftest import ROOT

from cachedoctor.diagnosis.rules import names
from cachedoctor.live.exporter.many_logs import Numbers
from cachedoctor.live.exporter.scrape_server import MetricsPage
from cachedoctor.model.terms import OF_INPUT

MONITORING, PIPELINES = ROOT / "contrib" / "monitoring", ROOT / "contrib" / "pipelines"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool comes with Prometheus")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def promtool(*args: object) -> None:
    done = subprocess.run([str(PROMTOOL), *map(str, args)], capture_output=True, cwd=MONITORING, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "grafana" / "cachedoctor.json").read_bytes())
    return found


def expressions() -> list[str]:
    """Of the dashboard, with what Grafana puts in for its variables."""
    found = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    for name, value in (("$__rate_interval", "5m"), ("$__range", "6h"), ("$server", ".*")):
        found = [expression.replace(name, value) for expression in found]
    return found


def alerts() -> list[dict[str, Any]]:
    return [rule for group in read(MONITORING / "alerts.yml")["groups"] for rule in group["rules"]]


def served() -> set[str]:
    """Names of the series that the page has."""
    metrics = MetricsPage(lambda: Numbers(Counter(), Counter(), {}, {})).collect()
    return {metric.name + ("_total" if metric.type == "counter" else "") for metric in metrics}


def test_every_metric_that_is_asked_for_is_served() -> None:
    asked = " ".join([*expressions(), *(alert["expr"] for alert in alerts())])
    assert set(re.findall(r"\bcachedoctor_\w+", asked)) <= served()
    assert len(served()) == 9


def test_causes_that_alerts_name_are_names_of_rules() -> None:
    (expression,) = [alert["expr"] for alert in alerts() if alert["alert"] == "CacheLogTooTerse"]
    causes = re.findall(r'cause=~"([^"]+)"', expression)[0].split("|")
    of_input = {name for code, name in names.names() if code.startswith(OF_INPUT)}
    assert set(causes) <= of_input
    assert len(causes) == 2


@needs_promtool
def test_alert_rules_do_what_their_cases_say() -> None:
    promtool("check", "rules", "alerts.yml")
    promtool("test", "rules", "alerts.test.yml")


def test_every_alert_has_a_case_that_fires_it() -> None:
    cases = read(MONITORING / "alerts.test.yml")["tests"]
    fired = {case["alertname"] for test in cases for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {alert["alert"] for alert in alerts()}


@needs_promtool
def test_every_expression_of_the_dashboard_can_be_asked(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(expressions())]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", path)


def test_panels_of_the_dashboard_stand_side_by_side() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: Counter[tuple[int, int]] = Counter()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells.update((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"]))
        assert panel["targets"]
        assert panel["type"] in ("stat", "timeseries", "table")
    assert max(cells.values()) == 1
    variables = {variable["name"] for variable in dashboard()["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w+)", json.dumps(dashboard())))
    assert variables == used == {"datasource", "server"}


def test_the_compose_file_mounts_what_is_there_and_opens_loopback_alone() -> None:
    services = read(MONITORING / "compose.yml")["services"]
    for service in services.values():
        for mount in service["volumes"]:
            if mount.startswith("./"):
                assert (MONITORING / mount.split(":")[0]).is_file(), mount
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    (scraped,) = read(MONITORING / "prometheus.yml")["scrape_configs"][0]["static_configs"][0]["targets"]
    host, port = scraped.split(":")
    assert f"0.0.0.0:{port}" in services[host]["command"]


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["vector.yaml", "fluent-bit.yaml", "otelcol.yaml"])
def test_commands_of_collectors_write_what_is_filtered_for(name: str, tmp_path: Path) -> None:
    text = (PIPELINES / name).read_text("utf-8")
    assert read(PIPELINES / name)
    words = re.findall(r"cachedoctor[\", ]+analyze[^|>\]\n]*", text)[0].replace('"', "").replace(",", "").split()
    log = tmp_path / "server.log"
    log.write_bytes(LOG)
    # the same without --follow, which would not end
    args = [word for word in words[1:] if word != "--follow"]
    args[args.index("/var/log/llama/server.log")] = str(log)
    done = run(*args)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"finding", "request"} <= {row["type"] for row in rows}
    assert max(map(len, done.stdout.splitlines())) < 1_000_000
