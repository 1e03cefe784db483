"""What every engine's messages are made of and found by: rows, patterns, scanners."""
