"""CD2xx: the server's memory cannot go back."""
