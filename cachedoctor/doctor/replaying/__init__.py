"""Makes what the replay works on: traffic of request bodies, or of the requests of a log, and a server's settings."""
