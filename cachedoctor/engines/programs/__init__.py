"""Programs that log a few numbers of each request, one file each: its messages, what proves it, and its tracker.

A file here is found by being here: it has ``PROGRAM``.
"""
