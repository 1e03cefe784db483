"""Faults on a real llama-server, fixed by what cachedoctor prints."""
