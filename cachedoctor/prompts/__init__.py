"""Where two prompts diverge, token by token, and why. Knows prompts and tokens; knows no log and no rule."""
