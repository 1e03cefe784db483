"""One account of every prompt token: who lost it. Pure: works on numbers of requests, without log lines and rules."""
