"""Traffic that other programs recorded: which requests a file of theirs holds, and what the answers counted.

Knows the forms that these programs write; knows no prompt, no log of a server, and nothing of what is done with them.
"""
