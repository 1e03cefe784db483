"""What a server would have reused of the prompts that it was sent, under the settings that it had or under others.

Pure: no files, no clock, no line of a log.
"""
