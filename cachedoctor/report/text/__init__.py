"""Formats for a terminal."""
