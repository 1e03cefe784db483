"""Asks a running server a few small questions and says whether it reuses what it should."""
