"""What is known of llama-server, as data and pure functions. Knows no log line and no request."""
