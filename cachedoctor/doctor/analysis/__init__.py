"""From bytes to a report: inputs, servers, sessions, requests, sums."""
