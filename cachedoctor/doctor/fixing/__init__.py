"""Merges what the findings of a server ask for into one fix."""
