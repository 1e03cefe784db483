"""Every log message of KoboldCpp that tells tokens of a request, one row per wording.

Source: ``gpttype_adapter.cpp`` and ``koboldcpp.py`` of KoboldCpp. A version counts as its second number (1.120 is 120), 0
where it is not known. Rows are data: no code here.
"""

from __future__ import annotations

from cachedoctor.engines.base import Message as R

ROWS: list[R] = [
    R("start", "koboldcpp", 0, 120, "O0", "Welcome to KoboldCpp - Version {version:word}",
      "Welcome to KoboldCpp - Version 1.120"),
    # the second number is what is computed of the prompt, not the prompt; on a terminal overwritten again and again
    R("progress", "koboldcpp", 0, 120, "I0", "Processing Prompt ({done:d} / {computed:d} tokens)",
      "Processing Prompt (1 / 1 tokens)"),
    R("progress", "koboldcpp", 0, 93, "I0", "Processing Prompt [BLAS] ({done:d} / {computed:d} tokens)",
      "Processing Prompt [BLAS] (1008 / 1008 tokens)"),
    R("progress", "koboldcpp", 0, 120, "I0", "Processing Prompt [BATCH] ({done:d} / {computed:d} tokens)",
      "Processing Prompt [BATCH] (190 / 190 tokens)"),
    R("done", "koboldcpp", 0, 0, "O0", "CtxLimit:{context:d}/{limit:d}, Amt:{generated:d}/{most:d}, Init:{init_s:f}s, Process:{prompt_s:f}s ({prompt_rate:f}T/s), Generate:{reply_s:f}s ({reply_rate:f}T/s), Total:{total_s:f}s",
      "[19:46:37] CtxLimit:2500/4096, Amt:5/470, Init:0.00s, Process:1.24s (2020.24T/s), Generate:0.18s (27.17T/s), Total:1.42s"),
    R("done", "koboldcpp", 0, 93, "O0", "CtxLimit:{context:d}/{limit:d}, Amt:{generated:d}/{most:d}, Init:{init_s:f}s, Process:{prompt_s:f}s ({prompt_ms:f}ms/T = {prompt_rate:f}T/s), Generate:{reply_s:f}s ({reply_ms:f}ms/T = {reply_rate:f}T/s), Total:{total_s:f}s ({total_rate:f}T/s)",
      "CtxLimit:1082/4096, Amt:74/400, Init:0.01s, Process:2.37s (2.4ms/T = 425.14T/s), Generate:2.07s (28.0ms/T = 35.77T/s), Total:4.44s (16.67T/s)"),
    R("done", "koboldcpp", 0, 120, "O0", "CtxLimit:{context:d}/{limit:d}, Init:{init_s:f}s, Processed:{computed:d} in {prompt_s:f}s ({prompt_rate:f}T/s), Generated:{generated:d}/{most:d} in {reply_s:f}s ({reply_rate:f}T/s), Total:{total_s:f}s",
      "[21:04:11] CtxLimit:161461/292144, Init:0.41s, Processed:161383 in 3419.68s (47.19T/s), Generated:78/300 in 9.12s (8.55T/s), Total:3429.21s"),
]
