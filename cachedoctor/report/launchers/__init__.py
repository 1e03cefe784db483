"""Puts options of a server into the form of what starts it: pure functions."""
