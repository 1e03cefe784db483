"""vLLM: its log has rates of intervals, but no requests."""

from cachedoctor.engines.engine_record import ACCESS, Literals, package
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
    rb"(?:\(\w{1,40}+ pid=[0-9]{1,9}+\) )?+(?:"
    + ACCESS
    + rb"|INFO [0-9: -]{14} \[loggers\.py:[0-9]{1,5}+\] Engine [0-9]{1,4}+: "
    rb"Avg prompt throughput: [0-9.]{1,12}+ tokens/s, Avg generation throughput: [0-9.]{1,12}+ tokens/s"
    rb"(?:, [A-Z][A-Za-z ]{2,40}+: [0-9.]{1,10}+(?: reqs|%|))++(?=\n))",
)
