"""Shared by rules about servers whose logs have rates, batches or numbers of requests, and about given input."""
