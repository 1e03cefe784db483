"""Lines of a server as programs that collect logs deliver them: one record per line, in their own order and frame.

Keys and forms as in the documents and sources of Loki and logcli, Filebeat, Vector, Fluent Bit, GCP, CloudWatch,
docker, containerd, stern, kubectl, journald and AWS FireLens.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

Line = str
Collector = Callable[[list[Line], str], bytes]
"""Delivers the lines of the server that runs in a pod."""

_BEGIN = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


def iso(at: int) -> str:
    """Time of the line ``at``: several lines have one, as collectors have it."""
    return (_BEGIN + timedelta(milliseconds=at // 3)).strftime("%Y-%m-%dT%H:%M:%S.%f") + f"{at % 1000:03d}Z"


def nanos(at: int) -> str:
    return str(int(_BEGIN.timestamp()) * 10**9 + (at // 3) * 10**6 + at % 1000)


def millis(at: int) -> int:
    return int(_BEGIN.timestamp()) * 1000 + at // 3


def _json(records: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def logcli_jsonl(lines: list[Line], pod: str) -> bytes:
    """``logcli query -o jsonl``: the newest line first."""
    labels = {"app": "llama", "container": "server", "detected_level": "unknown", "job": "ai/llama", "pod": pod}
    made = [{"labels": labels, "line": line, "timestamp": iso(at)} for at, line in enumerate(lines)]
    return _json(made[::-1])


def logcli_text(lines: list[Line], pod: str) -> bytes:
    """``logcli query``: the newest line first."""
    made = [
        f'{iso(at)} {{container="server", pod="{pod}", quoted="a\\"}} b"}}   {line}\n' for at, line in enumerate(lines)
    ]
    return "".join(made[::-1]).encode()


def loki_api(lines: list[Line], pod: str) -> bytes:
    """``/loki/api/v1/query_range``: one document, a list for each set of labels, each the newest line first."""
    labels = {"container": "server", "pod": pod}
    loud = [[nanos(at), line] for at, line in enumerate(lines) if at % 5 == 0]
    rest = [[nanos(at), line] for at, line in enumerate(lines) if at % 5]
    streams = [
        {"stream": labels | {"detected_level": "info"}, "values": rest[::-1]},
        {"stream": labels | {"detected_level": "error"}, "values": loud[::-1]},
    ]
    stats = {"summary": {"bytesProcessedPerSecond": 5, "queue": [{"a": 1}]}}
    return json.dumps(
        {"status": "success", "data": {"resultType": "streams", "result": streams, "stats": stats}}
    ).encode()


def filebeat(lines: list[Line], pod: str) -> bytes:
    kubernetes = {"pod": {"name": pod, "uid": "0a"}, "container": {"name": "server"}, "node": {"name": "gpu-1"}}
    frame = {"host": {"name": "filebeat-x1"}, "kubernetes": kubernetes, "ecs": {"version": "8.0.0"}, "stream": "stderr"}
    log = {"offset": 5, "file": {"path": "/var/log/containers/llama.log"}}
    return _json([{"@timestamp": iso(at), **frame, "log": log, "message": line} for at, line in enumerate(lines)])


def elasticsearch(lines: list[Line], pod: str) -> bytes:
    """``_search``, as curl stores it: hits inside hits, sorted by time, the newest first."""
    hits = [
        {
            "_index": "logs-1",
            "_source": {
                "@timestamp": iso(at),
                "event": {"original": line},
                "message": line,
                "kubernetes": {"pod": {"name": pod}},
            },
            "sort": [millis(at)],
        }
        for at, line in enumerate(lines)
    ]
    found = {"took": 3, "hits": {"total": {"value": len(hits)}, "hits": hits[::-1]}}
    return json.dumps(found, ensure_ascii=False, indent=2).encode()


def vector(lines: list[Line], pod: str) -> bytes:
    frame = {"container_id": "0a1b", "container_name": pod, "host": "gpu1", "image": "ghcr.io/x", "stream": "stderr"}
    tail = {"label": {"com.docker.compose.service": "llama"}, "source_type": "docker_logs"}
    return _json([{**frame, **tail, "message": line, "timestamp": iso(at)} for at, line in enumerate(lines)])


def fluent_bit(lines: list[Line], pod: str) -> bytes:
    """Its docker parser keeps the newline; docker cuts a line of more than 16 KiB."""
    kubernetes = {"pod_name": pod, "namespace_name": "ai", "container_name": "server", "labels": {"app": "llama"}}
    made = []
    for at, line in enumerate(lines):
        text = line + "\n"
        for begin in range(0, len(text), 16_384):
            part = text[begin : begin + 16_384]
            made.append({"date": 1763640000.5 + at // 3, "log": part, "stream": "stderr", "kubernetes": kubernetes})
    return _json(made)


def fluent_bit_cri(lines: list[Line], pod: str) -> bytes:
    kubernetes = {"pod_name": pod, "container_name": "server", "annotations": {"host": "nobody"}}
    made = []
    for at, line in enumerate(lines):
        half = len(line) // 2 if len(line) > 80 else 0
        for tag, text in (("P", line[:half]), ("F", line[half:])):
            if text or tag == "F":
                record = {"date": 1763640000 + at // 3, "stream": "stderr", "logtag": tag, "log": text}
                made.append(record | {"kubernetes": kubernetes})
    return _json(made)


def gcp(lines: list[Line], pod: str) -> bytes:
    """``gcloud logging read --format=json``: an array over several lines, the newest line first."""
    labels = {"cluster_name": "c", "container_name": "server", "namespace_name": "ai", "pod_name": pod}
    made = [
        {
            "insertId": f"i{at}",
            "labels": {"compute.googleapis.com/resource_name": "gke-1"},
            "receiveTimestamp": iso(at + 99),
            "resource": {"labels": labels, "type": "k8s_container"},
            "severity": "ERROR",
            "textPayload": line,
            "timestamp": iso(at),
        }
        for at, line in enumerate(lines)
    ]
    return json.dumps(made[::-1], ensure_ascii=False, indent=2).encode() + b"\n"


def cloudwatch_events(lines: list[Line], pod: str) -> bytes:
    """``aws logs filter-log-events``: one document."""
    made = [
        {
            "logStreamName": pod,
            "timestamp": millis(at),
            "message": line,
            "ingestionTime": millis(at) + 500,
            "eventId": "3",
        }
        for at, line in enumerate(lines)
    ]
    return json.dumps({"events": made, "searchedLogStreams": []}, indent=4).encode() + b"\n"


def cloudwatch_insights(lines: list[Line], pod: str) -> bytes:
    made = [
        {"@timestamp": iso(at)[:23].replace("T", " "), "@message": line, "@logStream": pod, "@ptr": "Cm"}
        for at, line in enumerate(lines)
    ]
    return json.dumps(made).encode()


def cloudwatch_export(lines: list[Line], pod: str) -> bytes:
    return "".join(f"{iso(at)[:23]}Z {line}\n" for at, line in enumerate(lines)).encode()


def aws_logs_tail(lines: list[Line], pod: str) -> bytes:
    return "".join(f"{iso(at)[:26]}+00:00 llama/{pod}/0a1b {line}\n" for at, line in enumerate(lines)).encode()


def subscription(lines: list[Line], pod: str) -> bytes:
    """What CloudWatch gives to Firehose: a document per line, each with several lines of the log."""
    made = []
    for first in range(0, len(lines), 7):
        events = [{"id": f"{at}", "timestamp": millis(at), "message": lines[at]} for at in range(first, len(lines))[:7]]
        frame = {"messageType": "DATA_MESSAGE", "owner": "1", "logGroup": "/ecs/llama", "logStream": pod}
        made.append({**frame, "subscriptionFilters": ["f"], "logEvents": events})
    return _json(made)


def docker(lines: list[Line], pod: str) -> bytes:
    return _json([{"log": line + "\n", "stream": "stderr", "time": iso(at)} for at, line in enumerate(lines)])


def cri(lines: list[Line], pod: str) -> bytes:
    return "".join(f"{iso(at)} stderr F {line}\n" for at, line in enumerate(lines)).encode()


def firelens(lines: list[Line], pod: str) -> bytes:
    frame = {
        "container_id": "0a-1",
        "container_name": pod,
        "ecs_cluster": "c",
        "ecs_task_arn": "arn:aws:ecs:x:1:task/c/2",
    }
    return _json([{"source": "stderr", "log": line, **frame} for line in lines])


def stern(lines: list[Line], pod: str) -> bytes:
    return "".join(f"{pod} server {line}\n" for line in lines).encode()


def stern_times(lines: list[Line], pod: str) -> bytes:
    return "".join(f"{pod} server {iso(at)} {line}\n" for at, line in enumerate(lines)).encode()


def stern_json(lines: list[Line], pod: str) -> bytes:
    frame = {"nodeName": "gpu-1", "namespace": "ai", "podName": pod, "containerName": "server"}
    return _json([{"message": line + "\n", **frame} for line in lines])


def kubectl(lines: list[Line], pod: str) -> bytes:
    return "".join(f"[pod/{pod}/server] {line}\n" for line in lines).encode()


def journald(lines: list[Line], pod: str) -> bytes:
    """``journalctl -o json``: text with colours is a list of its bytes."""
    return _json(
        [
            {
                "__REALTIME_TIMESTAMP": str(millis(at) * 1000),
                "_HOSTNAME": "gpu1",
                "_SYSTEMD_UNIT": f"{pod}.service",
                "MESSAGE": list(b"\x1b[0m" + line.encode()) if at % 4 == 0 else line,
                "PRIORITY": "6",
            }
            for at, line in enumerate(lines)
        ]
    )


def nested(lines: list[Line], pod: str) -> bytes:
    """A collector's record inside another's: docker's in Vector's in Loki's."""
    inner = [json.dumps({"log": line + "\n", "stream": "stderr", "time": iso(at)}) for at, line in enumerate(lines)]
    outer = [json.dumps({"message": text, "kubernetes": {"pod_name": pod}}) for text in inner]
    return _json([{"labels": {"cluster": "c"}, "line": text, "timestamp": iso(at)} for at, text in enumerate(outer)])


COLLECTORS: dict[str, Collector] = {
    one.__name__: one
    for one in (
        logcli_jsonl, logcli_text, loki_api, filebeat, elasticsearch, vector, fluent_bit, fluent_bit_cri, gcp,
        cloudwatch_events, cloudwatch_insights, cloudwatch_export, aws_logs_tail, subscription, docker, cri, firelens,
        stern, stern_times, stern_json, kubectl, journald, nested,
    )
}  # fmt: skip
