"""What of one token sequence is in another."""
