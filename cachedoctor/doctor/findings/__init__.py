"""The rules run over requests and sessions, and what they report becomes findings."""
