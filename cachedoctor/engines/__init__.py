"""Engines: the log messages of each server, and how they become requests."""
