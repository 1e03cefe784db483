"""CD9xx: what the input lacks."""
