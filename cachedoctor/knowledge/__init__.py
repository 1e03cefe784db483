"""What is known of llama-server, as data and pure functions."""
