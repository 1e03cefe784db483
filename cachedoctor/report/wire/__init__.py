"""Formats that programs read."""
