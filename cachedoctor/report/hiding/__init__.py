"""How secrets look, as data, and how they may be written."""
