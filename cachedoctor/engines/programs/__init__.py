"""Programs that log a few numbers of each request; one file each, with its messages, its proof and its tracker.

Every file here that has ``PROGRAM`` is a program.
"""
