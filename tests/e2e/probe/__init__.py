"""Faults planted around real servers, which ``cachedoctor probe`` has to name."""
