"""OpenTelemetry traces and logs with gen_ai attributes, as OTLP JSON: ``{"resourceSpans": [...]}``, one or a line each.

Shapes: opentelemetry-proto's JSON mapping; semantic-conventions docs/gen-ai (gen-ai-spans.md, gen-ai-events.md and the
JSON schemas of messages): ``gen_ai.input.messages`` on the span or on its event, up to 1.36 an event for each message;
``gen_ai.prompt.0.role`` as OpenLLMetry wrote before. Spans of OpenInference have attributes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cachedoctor.inputs.captures import otel_messages
from cachedoctor.inputs.captures import otel_messages as openinference
from cachedoctor.inputs.captures.captured import Capture, Captured, counts
from cachedoctor.knowledge.late_patterns import late

LOOKS = late(rb'\A\s*+(?:\[\s*+)?\{\s*"resource(?:Spans|Logs)"\s*:')
_AGENTS = ("invoke_agent", "create_agent", "execute_tool", "invoke_workflow", "embeddings", "retrieval")
"""Operations that do not request a reply from a model."""
_PROMPT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", openinference.PROMPT_TOKENS)
_CACHED_TOKENS = (
    "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.input_tokens.cached",
    openinference.CACHED_TOKENS,
)  # fmt: skip
_MODEL = ("gen_ai.response.model", "gen_ai.request.model", openinference.MODEL)
_DEEPEST = 64
"""Spans around a span that are checked."""
_HINT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT, or the gateway's own option, puts messages into spans"

Attributes = dict[str, Any]


def read(values: list[Any]) -> Capture | None:
    """Read spans and log records; None for anything else."""
    documents = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    if not documents or not all(
        isinstance(d, dict) and ("resourceSpans" in d or "resourceLogs" in d) for d in documents
    ):
        return None
    spans, events = list(_spans(documents)), _events_of_spans(documents)
    known = {span.key for span in spans}
    spans += [_ExportedSpan.of_event(key, details) for key, details in events.items() if key not in known]
    asking = [span for span in spans if _asks_model(span.attributes)]
    outer = _around(asking, {span.key: span for span in spans})
    found = Capture("OpenTelemetry spans", [], hint=_HINT)
    silent = toolless = lossy = 0
    for span in asking:
        if span.key in outer:
            continue
        said = span.events + events.get(span.key, [])
        body, has_all = otel_messages.body_of(span.attributes, said), True
        if body is None:
            body, has_all = openinference.openinference_body(span.attributes, dropped=span.dropped)
        silent += body is None
        lossy += not has_all
        is_whole = has_all and (body is None or "tools" in body or not otel_messages.uses_tools(body))
        toolless += body is not None and "tools" not in body
        answer = counts(
            _first(span.attributes, _PROMPT_TOKENS), _first(span.attributes, _CACHED_TOKENS),
            _first(span.attributes, _MODEL),
        )  # fmt: skip
        found.requests.append(Captured(body, "", answer, span.start, is_whole))
    if silent:
        found.notes.append(f"{silent:,} of its requests have no messages")
    if lossy:
        found.notes.append(f"{lossy:,} of its requests lost messages because of an attribute limit")
    if toolless:
        found.notes.append(f"{toolless:,} of its requests have no tool definitions: unknown whether they had tools")
    return found.in_order()


class _ExportedSpan:
    """A span as it was exported."""

    def __init__(self, raw: Attributes) -> None:
        self.key = (str(raw.get("traceId", "")), str(raw.get("spanId", "")))
        self.parent = (self.key[0], str(raw.get("parentSpanId") or ""))
        self.attributes = attributes_of(raw)
        self.dropped = bool(raw.get("droppedAttributesCount"))
        """A limit (OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, 128) left out some of them."""
        self.start = nanoseconds(raw.get("startTimeUnixNano"))
        self.events = [event for event in map(_event, _list(raw, "events")) if event is not None]

    @staticmethod
    def of_event(key: tuple[str, str], events: list[otel_messages.SpanEvent]) -> _ExportedSpan:
        """A request that has only log records."""
        found = _ExportedSpan({})
        found.key, found.start = key, events[0].time
        for event in events:
            found.attributes |= event.attributes
        return found


def _spans(documents: list[Attributes]) -> Iterator[_ExportedSpan]:
    for document in documents:
        for resource in _list(document, "resourceSpans"):
            for scope in _list(resource, "scopeSpans") or _list(resource, "instrumentationLibrarySpans"):
                yield from map(_ExportedSpan, _list(scope, "spans"))


def _events_of_spans(documents: list[Attributes]) -> dict[tuple[str, str], list[otel_messages.SpanEvent]]:
    """Events that were exported as log records, by the span that they belong to."""
    found: dict[tuple[str, str], list[otel_messages.SpanEvent]] = {}
    for document in documents:
        for resource in _list(document, "resourceLogs"):
            for scope in _list(resource, "scopeLogs"):
                for record in _list(scope, "logRecords"):
                    event = _event(record)
                    if event is not None:
                        span = record.get("spanId") or f"record {len(found)}"
                        found.setdefault((str(record.get("traceId", "")), str(span)), []).append(event)
    return found


def _event(raw: Attributes) -> otel_messages.SpanEvent | None:
    attributes = attributes_of(raw)
    name = raw.get("name") or raw.get("eventName") or attributes.get("event.name")
    if not isinstance(name, str) or not name.startswith("gen_ai."):
        return None
    body = value_of(raw.get("body"))
    time = nanoseconds(raw.get("timeUnixNano") or raw.get("observedTimeUnixNano"))
    return otel_messages.SpanEvent(name, attributes, body if isinstance(body, dict) else {}, time)


def _asks_model(attributes: Attributes) -> bool:
    operation = attributes.get("gen_ai.operation.name")
    if operation in _AGENTS:
        return False
    named = "gen_ai.request.model" in attributes or "gen_ai.input.messages" in attributes
    return operation is not None or named or openinference.asks_model(attributes)


def _around(asking: list[_ExportedSpan], spans: dict[tuple[str, str], _ExportedSpan]) -> set[tuple[str, str]]:
    """Requests around another one: a client's span and its gateway's are one request."""
    keys = {span.key for span in asking}
    outer: set[tuple[str, str]] = set()
    for span in asking:
        parent = span.parent
        for _ in range(_DEEPEST):
            if parent in keys and parent != span.key:
                outer.add(parent)
            if parent not in spans:
                break
            parent = spans[parent].parent
    return outer


def attributes_of(raw: Attributes) -> Attributes:
    """Attributes by name, as plain values."""
    return {str(one.get("key")): value_of(one.get("value")) for one in _list(raw, "attributes")}


def value_of(value: Any) -> Any:
    """A value of OTLP as plain JSON; None for one that has none."""
    if not isinstance(value, dict):
        return None
    for name, inner in value.items():
        match name:
            case "stringValue" | "boolValue" | "doubleValue":
                return inner
            case "intValue":  # 64 bits, which JSON mappings write as text
                return int(inner) if isinstance(inner, str) and inner.isdecimal() and len(inner) < 20 else inner
            case "arrayValue":
                return [value_of(one) for one in _list(inner, "values")]
            case "kvlistValue":
                return {str(one.get("key")): value_of(one.get("value")) for one in _list(inner, "values")}
    return None


def nanoseconds(value: Any) -> float | None:
    """Seconds since 1970 of a count of nanoseconds, as text or a number."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    return value / 1e9 if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _first(attributes: Attributes, names: tuple[str, ...]) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _list(value: Any, name: str) -> list[Attributes]:
    found = value.get(name) if isinstance(value, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
