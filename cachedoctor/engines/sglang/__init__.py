"""SGLang: its log has batches of several requests, and requests only where --log-requests is on."""

import re

from cachedoctor.engines.engine import Either, Literals, package

ENGINE = package(
    "sglang",
    Either(
        re.compile(rb"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z_]{2,8}\d{1,4})*\] "),
        Literals(
            b"Prefill batch",
            b"new fill batch",
            sure=re.compile(
                rb"(?m:^[ \t]{0,16}(?:(?:\[gpu(?:_id)?=\d{1,3}\] )?Prefill batch[.,] #new-seq: \d"
                rb"|new fill batch\. #seq: \d))"
            ),
        ),
    ),
)
