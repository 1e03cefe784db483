"""SGLang: its log has batches of several requests, and single requests only with --log-requests."""

from cachedoctor.engines.engine_record import ACCESS, Either, Literals, package
from cachedoctor.knowledge.late_patterns import late

ENGINE = package(
    "sglang",
    Either(
        late(rb"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z_]{2,8}\d{1,4})*\] "),
        Literals(
            b"Prefill batch",
            b"new fill batch",
            sure=late(
                rb"(?m:^[ \t]{0,16}(?:(?:\[gpu(?:_id)?=\d{1,3}\] |"
                rb"(?:\d{4}-\d\d-\d\dT[\d:.]{8,18}Z {0,3})?(?:INFO|DEBUG) {1,2}(?:[\w.]{1,120}: )?+)?"
                rb"Prefill batch[.,] #new-seq: \d"
                rb"|new fill batch\. #seq: \d))"
            ),
        ),
    ),
    rb"\[[0-9 .,:-]{8,33}(?:(?: [A-Z_]{2,8}+[0-9]{1,4}+)*+\] (?:Prefill|Decode) batch"
    rb"(?:, [#a-z() /-]{4,40}+: (?:[0-9.]{1,12}+|True|False))++(?:, )?(?=\n)|\] " + ACCESS + rb")",
)
