"""vLLM: its log has rates of intervals, and no requests."""

from cachedoctor.engines.engine_record import Literals, package
from cachedoctor.knowledge.late_patterns import late

ENGINE = package(
    "vllm",
    Literals(
        b".py:",
        b"Avg prompt throughput",
        b"LMCache hit tokens: ",
        b" LLM engine (v",
        sure=late(
            rb"\.py:\d{1,5}\] |Avg prompt throughput|LMCache hit tokens: \d"
            rb"|Initializing an? (?:V[01] )?LLM engine \(v"
        ),
    ),
)
