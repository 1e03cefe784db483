"""Answers what a server would have reused under other settings: evidence, what-if, the best settings."""
