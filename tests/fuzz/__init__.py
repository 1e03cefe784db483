"""Hostile input: what readers hold for any bytes. The tests run it for seconds, ``sh scripts/fuzz`` for long."""
