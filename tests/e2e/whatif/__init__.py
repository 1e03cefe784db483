"""Answers of ``cachedoctor tune --set``, held against a real server that gets the same bodies afterwards."""
