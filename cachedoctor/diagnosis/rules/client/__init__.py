"""CD1xx: the client changed the prompt."""
