"""Where log bytes come from."""
