"""From requests to findings: the account of tokens, the replay, and the rules."""
