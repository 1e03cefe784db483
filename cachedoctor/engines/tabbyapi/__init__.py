"""TabbyAPI: one line per request, with cached and new tokens."""
