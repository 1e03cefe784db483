"""Single lines of a log in words."""
