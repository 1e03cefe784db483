"""vLLM: its log has rates of intervals, and no requests."""
