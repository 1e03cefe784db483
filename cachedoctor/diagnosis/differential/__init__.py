"""Ranks the causes between which a log does not decide, by kinds of evidence whose worth was measured."""
