"""One account of every prompt token: who lost it. Pure; knows numbers of requests, no log line and no rule."""
