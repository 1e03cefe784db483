"""What lies beside a log of vLLM or SGLang: dumps of /metrics, and responses that say what was reused.

Knows the formats of both and what their numbers count. Knows no log, no rule and no file.
"""
