"""CD5xx: why vLLM's prefix cache reused little."""
