"""Where two prompts diverge, token by token, and why."""
