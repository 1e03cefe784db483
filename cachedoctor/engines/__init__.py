"""Engines: what a server's log lines are called and how they fold into requests."""
