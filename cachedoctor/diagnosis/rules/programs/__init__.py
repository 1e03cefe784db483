"""CD7xx: what programs that start or swap a model keep of its cache."""
