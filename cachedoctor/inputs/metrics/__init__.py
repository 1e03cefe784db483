"""What lies beside a log of vLLM or SGLang: dumps of /metrics, and responses that say what was reused."""
