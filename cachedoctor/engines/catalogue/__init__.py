"""Rows, patterns and scanners: how the messages of every engine are described and found."""
