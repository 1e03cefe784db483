"""Ranks the causes that a log does not decide between, by kinds of evidence with measured weights."""
