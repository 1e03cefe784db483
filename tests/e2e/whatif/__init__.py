"""Answers of ``cachedoctor simulate``, held against a real server that gets the same bodies afterwards."""
