"""Between clients and a server: bytes pass unchanged, and each request is told when it ends.

One process passes bytes (``relay``); another reads copies of them (``looking``), so that a long prompt delays nobody.
"""
