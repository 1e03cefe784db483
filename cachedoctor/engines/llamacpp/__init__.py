"""llama-server: its log messages, and how they become requests."""
