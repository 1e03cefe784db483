"""Bytes to lines and records: sources, wrappers, recordings of other programs, metrics."""
