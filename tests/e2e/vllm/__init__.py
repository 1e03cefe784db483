"""Faults on a real vLLM, and whether cachedoctor names them."""
