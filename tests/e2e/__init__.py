"""Faults on a real llama-server, cured by what cachedoctor prints."""
