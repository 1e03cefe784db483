"""Logs read in several processes, with the report of one."""
