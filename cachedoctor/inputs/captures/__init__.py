"""Traffic that other programs recorded: which requests a file of theirs holds, and what the answers counted."""
